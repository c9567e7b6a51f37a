//! The names of addresses: symbol and offset, for a child that is a fork of this program.

use std::{
    fs,
    path::{Path, PathBuf},
};

use object::{Object, ObjectSegment, ObjectSymbol};

/// The mappings of a process that has the same addresses as the one in question.
#[derive(Debug)]
pub(crate) struct Symbols {
    ranges: Vec<Mapping>,
}

#[derive(Debug)]
struct Mapping {
    from: u64,
    to: u64,
    offset: u64,
    file: PathBuf,
}

impl Symbols {
    /// The mappings that `maps` (as in /proc) lists.
    pub(crate) fn of_maps(maps: &str) -> Self {
        let ranges = maps.lines().filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let number = |text| u64::from_str_radix(text, 16).ok();
            let file = words.nth(2).unwrap_or("anonymous").into();
            Some(Mapping {
                from: number(from)?,
                to: number(to)?,
                offset: number(offset)?,
                file,
            })
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// What is mapped at an address.
    pub(crate) fn file(&self, address: u64) -> Option<&Path> {
        let mapping = self
            .ranges
            .iter()
            .find(|range| (range.from..range.to).contains(&address));
        mapping.map(|mapping| mapping.file.as_path())
    }

    /// `symbol+offset` of an address, or as much of it as can be found out.
    pub(crate) fn name(&self, address: u64) -> String {
        let Some(mapping) = self
            .ranges
            .iter()
            .find(|range| (range.from..range.to).contains(&address))
        else {
            return format!("{address:#x} (not mapped)");
        };
        let offset = address - mapping.from + mapping.offset;
        symbol(mapping, offset).unwrap_or_else(|| format!("{}+{offset:#x}", mapping.file.display()))
    }
}

fn symbol(mapping: &Mapping, offset: u64) -> Option<String> {
    let bytes = fs::read(&mapping.file).ok()?;
    let file = object::File::parse(bytes.as_slice()).ok()?;
    // From the place in the file to the address that the file's symbols speak of.
    let address = file.segments().find_map(|segment| {
        let (start, size) = segment.file_range();
        (start..start + size)
            .contains(&offset)
            .then(|| offset - start + segment.address())
    })?;
    let named = file.symbols().chain(file.dynamic_symbols());
    let best = named
        .filter(|symbol| symbol.address() <= address && symbol.kind() == object::SymbolKind::Text)
        .max_by_key(ObjectSymbol::address)?;
    let name = rustc_demangle::demangle(best.name().ok()?).to_string();
    Some(format!("{name}+{:#x}", address - best.address()))
}

#[cfg(test)]
mod tests {
    use super::Symbols;

    #[test]
    fn an_address_inside_a_function_is_named_by_the_function() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let here = an_address_inside_a_function_is_named_by_the_function as fn() as usize;
        let name = Symbols::of_maps(&maps).name(u64::try_from(here).unwrap() + 3);
        assert!(name.contains("is_named_by_the_function"), "{name}");
        assert!(name.ends_with("+0x3"), "{name}");
    }

    #[test]
    fn an_address_outside_every_mapping_is_not_named() {
        assert!(Symbols::of_maps("").name(16).contains("not mapped"));
    }
}
