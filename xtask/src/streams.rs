//! Judges what publishers did and readers saw of one ring: whether any run of a correct ring can look like this.
//!
//! A publisher notes each record before it publishes it, and afterwards what became of it; one that was killed has noted
//! a record whose end nobody knows. A reader notes each record that it was given, in order, and in the end its counts, unless it
//! was killed. All is quiet when it is judged. The rules:
//!
//! 1. what a reader is given was begun by that publisher, and under the number that its publisher was told, if it was;
//! 2. a record that its publisher was told is not committed is given to nobody;
//! 3. a number belongs to one record, a record has one number, and no number was taken that nobody can have taken;
//! 4. a reader's numbers grow, and so do each publisher's records among them: none comes twice, none before an earlier one;
//!    and a publisher's own numbers grow;
//! 5. readers agree: none is given a record under a number that another is given another record under, or that another
//!    counts as never finished;
//! 6. a reader's counts add up to the numbers that were taken since it began, and it counts as delivered what it was given;
//! 7. what was given to somebody, or its publisher was told is committed, each reader is given, or counts as overtaken.

use std::collections::{BTreeMap, BTreeSet};

/// A record, as its publisher names it: which publisher, and how many it had begun before.
pub(crate) type Name = (u32, u64);

/// What became of a record, as its publisher was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Readers are given it.
    Committed,
    /// They are not: it was withdrawn, dropped, or its slots were claimed over.
    Not,
}

/// What a reader says that it counted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) delivered: u64,
    pub(crate) lapped: u64,
    pub(crate) abandoned: u64,
    pub(crate) pending: u64,
}

/// What one reader saw.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reader {
    /// The first number that it could have been given.
    pub(crate) from: u64,
    /// What it was given, in that order.
    pub(crate) given: Vec<(u64, Name)>,
    /// `None`: it was killed, and may have been given more than it noted.
    pub(crate) counts: Option<Counts>,
}

/// What all saw of one ring.
#[derive(Debug, Default, Clone)]
pub(crate) struct Streams {
    begun: BTreeMap<u32, u64>,
    ended: BTreeMap<Name, (u64, End)>,
    readers: BTreeMap<String, Reader>,
}

/// What a judged run held, so that an empty one is not taken for a good one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Records that publishers were told are committed.
    pub(crate) committed: usize,
    /// Records that publishers were told are not.
    pub(crate) not_committed: usize,
    /// Records that were given to readers, each as often as it was.
    pub(crate) given: usize,
    /// Records that readers counted as overtaken, each as often as it was.
    pub(crate) lapped: u64,
    /// Records that readers counted as never finished, each as often as it was.
    pub(crate) abandoned: u64,
}

impl std::ops::AddAssign for Judged {
    fn add_assign(&mut self, other: Self) {
        self.committed += other.committed;
        self.not_committed += other.not_committed;
        self.given += other.given;
        self.lapped += other.lapped;
        self.abandoned += other.abandoned;
    }
}

/// Whose each number is, and which number each record has.
#[derive(Default)]
struct Owners {
    of: BTreeMap<u64, Name>,
    number: BTreeMap<Name, u64>,
}

impl Owners {
    fn add(&mut self, who: &str, number: u64, record: Name) -> Result<(), String> {
        let owner = *self.of.entry(number).or_insert(record);
        if owner != record {
            return Err(format!(
                "{who} has {record:?} as number {number}, which is {owner:?}"
            ));
        }
        let other = *self.number.entry(record).or_insert(number);
        if other != number {
            return Err(format!(
                "{who} has {record:?} as number {number}, which is number {other}"
            ));
        }
        Ok(())
    }
}

impl Streams {
    /// `publisher` has begun `count` records in all, numbered from 0.
    pub(crate) fn begun(&mut self, publisher: u32, count: u64) {
        self.begun.insert(publisher, count);
    }

    /// Its publisher was told that this record has this number, and what became of it.
    pub(crate) fn ended(&mut self, record: Name, number: u64, end: End) {
        self.ended.insert(record, (number, end));
    }

    pub(crate) fn reader(&mut self, who: impl Into<String>, reader: Reader) {
        self.readers.insert(who.into(), reader);
    }

    /// The first rule that is broken, in words; or how much was judged. `published`: how many numbers the ring has given.
    pub(crate) fn judge(&self, published: u64) -> Result<Judged, String> {
        let mut owners = self.told()?;
        for (who, reader) in &self.readers {
            self.is_one_stream(who, reader, published)?;
            for &(number, record) in &reader.given {
                owners.add(who, number, record)?;
            }
            if let Some(counts) = reader.counts {
                adds_up(who, reader, counts, published)?;
            }
        }
        self.are_all_known(&owners, published)?;
        self.nothing_is_missing(published)?;
        let is_committed = |(_, end): &&(u64, End)| *end == End::Committed;
        let committed = self.ended.values().filter(is_committed).count();
        let counts = || self.readers.values().filter_map(|reader| reader.counts);
        Ok(Judged {
            committed,
            not_committed: self.ended.len() - committed,
            given: self.readers.values().map(|reader| reader.given.len()).sum(),
            lapped: counts().map(|counts| counts.lapped).sum(),
            abandoned: counts().map(|counts| counts.abandoned).sum(),
        })
    }

    /// What publishers were told.
    fn told(&self) -> Result<Owners, String> {
        let mut owners = Owners::default();
        let mut last: Option<(Name, u64)> = None;
        for (&record, &(number, _)) in &self.ended {
            owners.add("a publisher", number, record)?;
            if let Some((earlier, before)) = last
                && earlier.0 == record.0
                && before > number
            {
                return Err(format!(
                    "{earlier:?} has number {before}, and the later {record:?} number {number}"
                ));
            }
            last = Some((record, number));
        }
        Ok(owners)
    }

    /// A number of which nothing is known was taken by one who was killed before he could tell.
    fn are_all_known(&self, owners: &Owners, published: u64) -> Result<(), String> {
        let largest = owners.of.last_key_value().map_or(0, |(number, _)| *number);
        if largest > published {
            return Err(format!("number {largest} of {published} in all"));
        }
        let unknown = published - wide(owners.of.len());
        let untold = self.begun.values().sum::<u64>() - wide(owners.number.len());
        if unknown > untold {
            return Err(format!(
                "{unknown} numbers are nobody's, and of {untold} records alone nothing is known"
            ));
        }
        Ok(())
    }

    fn is_one_stream(&self, who: &str, reader: &Reader, published: u64) -> Result<(), String> {
        let mut last = reader.from.checked_sub(1);
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        for &(number, record) in &reader.given {
            let (publisher, count) = record;
            if last.is_some_and(|last| number <= last) || number > published {
                return Err(format!(
                    "{who} was given number {number} after {last:?}, of {published} in all"
                ));
            }
            last = Some(number);
            if self
                .begun
                .get(&publisher)
                .is_none_or(|&begun| count >= begun)
            {
                return Err(format!("{who} was given {record:?}, which nobody began"));
            }
            if newest
                .insert(publisher, count)
                .is_some_and(|before| before >= count)
            {
                return Err(format!("{who} was given {record:?} out of its order"));
            }
            if let Some((_, End::Not)) = self.ended.get(&record) {
                return Err(format!(
                    "{who} was given {record:?}, which was not committed"
                ));
            }
        }
        Ok(())
    }

    fn nothing_is_missing(&self, published: u64) -> Result<(), String> {
        let mut certain: BTreeSet<u64> = BTreeSet::new();
        certain.extend(
            self.ended
                .values()
                .filter(|(_, end)| *end == End::Committed)
                .map(|(number, _)| number),
        );
        for reader in self.readers.values() {
            certain.extend(reader.given.iter().map(|(number, _)| number));
        }
        for (who, reader) in &self.readers {
            let Some(counts) = reader.counts else {
                continue;
            };
            let seen = reader.from..published + 1 - counts.pending;
            let is_missing = |number: &&u64| {
                let given = reader.given.binary_search_by_key(*number, |(of, _)| *of);
                given.is_err()
            };
            let missing: Vec<u64> = certain.range(seen).filter(is_missing).copied().collect();
            if wide(missing.len()) > counts.lapped {
                return Err(format!(
                    "{who} was overtaken by {} records, and was not given {} that there are, number {} first",
                    counts.lapped,
                    missing.len(),
                    missing[0]
                ));
            }
        }
        Ok(())
    }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("a length fits 64 bits")
}

fn adds_up(who: &str, reader: &Reader, counts: Counts, published: u64) -> Result<(), String> {
    if counts.delivered != wide(reader.given.len()) {
        return Err(format!(
            "{who} was given {} records, and counts {counts:?}",
            reader.given.len()
        ));
    }
    let sum = [
        counts.delivered,
        counts.lapped,
        counts.abandoned,
        counts.pending,
    ];
    let sum: u128 = sum.into_iter().map(u128::from).sum();
    let taken = (published + 1).checked_sub(reader.from);
    if taken.map(u128::from) != Some(sum) {
        return Err(format!(
            "{who} began at {}, the last is {published}: {counts:?} do not add up",
            reader.from
        ));
    }
    Ok(())
}

#[cfg(test)]
#[path = "streams_tests.rs"]
mod tests;
