//! What publishers and readers note, each in a file of its own: a line with one `write` each, so that a kill loses the end of
//! one at most.

use std::{fs::File, io::Write, path::Path};

use arena_ring::Published;

use crate::{
    outcome::{Outcome, Stop},
    streams::{End, Name, Streams},
    text,
};

/// A file of notes.
#[derive(Debug)]
pub(super) struct Notes {
    file: File,
    lines: String,
}

impl Notes {
    pub(super) fn new(path: &str) -> Self {
        Self {
            file: File::create(path).expect("the scenario's directory is there"),
            lines: String::new(),
        }
    }

    /// `count` records are begun, of which the first has this place in the publisher's row.
    pub(super) fn begun(&mut self, first: u64, count: u64) {
        self.line(&format!("begun {first} {count}"));
        self.write();
    }

    /// What its publisher was told became of them.
    pub(super) fn ended(&mut self, first: u64, count: u64, published: Published) {
        let seq = published.seq();
        let how = published.is_committed().then_some("committed");
        self.line(&format!("{} {first} {count} {seq}", how.unwrap_or("not")));
        self.write();
    }

    /// It was withdrawn by its publisher.
    pub(super) fn dropped(&mut self, first: u64, seq: u64) {
        self.line(&format!("not {first} 1 {seq}"));
        self.write();
    }

    /// A reader was given a record. Kept until [`write`](Self::write).
    pub(super) fn given(&mut self, seq: u64, name: Name) {
        self.line(&format!("{seq} {} {}", name.0, name.1));
    }

    fn line(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    pub(super) fn write(&mut self) {
        self.file
            .write_all(self.lines.as_bytes())
            .expect("the scenario's directory has room");
        self.lines.clear();
    }
}

/// What a publisher's notes say: how many records it began, and what it was told: of each, its place, its number, its end.
#[derive(Debug, Default)]
pub(crate) struct PublisherNotes {
    pub(crate) begun: u64,
    pub(crate) ended: Vec<(u64, u64, End)>,
}

/// Reads a publisher's notes.
pub(crate) fn read_publisher(path: &Path) -> Outcome<PublisherNotes> {
    let mut notes = PublisherNotes::default();
    for line in lines(path)? {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers = words[1..].iter().map(|word| text::number(word));
        let numbers: Vec<u64> = numbers.collect::<Outcome<_>>()?;
        let end = match words[0] {
            "committed" => End::Committed,
            _ => End::Not,
        };
        match (words[0], &numbers[..]) {
            ("begun", &[first, count]) => notes.begun = notes.begun.max(first + count),
            ("committed" | "not", &[first, count, seq]) => {
                let each = (0..count).map(|k| (first + k, seq + k, end));
                notes.ended.extend(each);
            }
            _ => return Err(Stop::failed(format!("no note: {line:?}"))),
        }
    }
    Ok(notes)
}

/// Adds a publisher's notes to what is judged.
pub(crate) fn add_publisher(streams: &mut Streams, publisher: u32, notes: &PublisherNotes) {
    streams.begun(publisher, notes.begun);
    for &(count, number, end) in &notes.ended {
        streams.ended((publisher, count), number, end);
    }
}

/// What a reader noted that it was given.
pub(crate) fn given(path: &Path) -> Outcome<Vec<(u64, Name)>> {
    let given = |line: &String| {
        let numbers = line.split(' ').map(text::number);
        match numbers.collect::<Outcome<Vec<u64>>>()?[..] {
            [seq, publisher, count] => Ok((seq, (u32::try_from(publisher)?, count))),
            _ => Err(Stop::failed(format!("no note: {line:?}"))),
        }
    };
    lines(path)?.iter().map(given).collect()
}

/// The whole lines of a file; the last one may have been cut off by a kill.
fn lines(path: &Path) -> Outcome<Vec<String>> {
    let text = std::fs::read_to_string(path)?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    Ok(whole.lines().map(str::to_owned).collect())
}
