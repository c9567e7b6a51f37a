//! Memory that several Linux processes map, carve into regions and lock, with proof of death.
