//! Judges what processes observed of one lease: whether any run of a correct lease can look like this.
//!
//! Each process notes the boot clock before and after each call. A process *held* from the return of `Held(fence)`
//! to the entry of the last call that showed it still held that fence (`mine` true, or `renew` held). The rules:
//!
//! 1. no instant lies in the spans of two processes;
//! 2. of two acquisitions, one returned before the other was called: the later has the larger fence;
//! 3. a fence belongs to one process;
//! 4. `mine` and `renew` speak of the fence that the process acquired last, and never of one that it was told it
//!    lost, or that it released;
//! 5. once an acquisition with a larger fence has returned anywhere, no call that enters later shows a smaller one
//!    as held.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// What a call said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// `acquire` returned this fence.
    Held,
    /// `mine` was true.
    Mine,
    /// `renew` kept it.
    Renewed,
    /// `renew` (or a guard) said that it is lost.
    Lost,
    /// `release` gave it up.
    Released,
}

const WORDS: &[(&str, Said)] = &[
    ("held", Said::Held),
    ("mine", Said::Mine),
    ("renewed", Said::Renewed),
    ("lost", Said::Lost),
    ("released", Said::Released),
];

/// One call of one process: boot-clock nanoseconds around it, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// The clock before the call.
    pub(crate) entry: u64,
    /// The clock after it.
    pub(crate) back: u64,
    /// What it said.
    pub(crate) said: Said,
    /// Of which fence.
    pub(crate) fence: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = WORDS
            .iter()
            .find(|(_, said)| *said == self.said)
            .map_or("", |(word, _)| *word);
        write!(f, "{} {} {word} {}", self.entry, self.back, self.fence)
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let bad = || format!("no event: {line:?}");
        let words: Vec<&str> = line.split(' ').collect();
        let &[entry, back, word, fence] = words.as_slice() else {
            return Err(bad());
        };
        let said = WORDS.iter().find(|(name, _)| *name == word);
        Ok(Self {
            entry: entry.parse().map_err(|_| bad())?,
            back: back.parse().map_err(|_| bad())?,
            said: said.ok_or_else(bad)?.1,
            fence: fence.parse().map_err(|_| bad())?,
        })
    }
}

/// What all processes observed of one lease.
#[derive(Debug, Default, Clone)]
pub(crate) struct History {
    processes: BTreeMap<String, Vec<Event>>,
}

/// One process's time with one fence.
#[derive(Debug, Clone)]
struct Span {
    who: String,
    fence: u64,
    acquired: Event,
    /// The entry of the last call that showed it held.
    until: Option<u64>,
    over: bool,
}

/// What a judged history held, so that an empty one is not taken for a good one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Acquisitions with a new fence.
    pub(crate) acquisitions: usize,
    /// Calls that showed a fence as held.
    pub(crate) shown: usize,
}

impl History {
    /// Adds the events of `who`, in the order of its calls.
    pub(crate) fn add(&mut self, who: impl Into<String>, events: impl IntoIterator<Item = Event>) {
        self.processes.entry(who.into()).or_default().extend(events);
    }

    /// Adds the events that `text` lists, one a line; a last line that its writer did not finish is dropped.
    pub(crate) fn add_lines(&mut self, who: impl Into<String>, text: &str) -> Result<(), String> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events: Result<Vec<Event>, String> = whole.lines().map(str::parse).collect();
        self.add(who, events?);
        Ok(())
    }

    /// The first rule that is broken, in words; or how much was judged.
    pub(crate) fn judge(&self) -> Result<Judged, String> {
        let mut spans = Vec::new();
        let mut judged = Judged::default();
        for (who, events) in &self.processes {
            in_order(who, events)?;
            judged.shown += events.iter().filter(|event| event.shows()).count();
            spans.extend(spans_of(who, events)?);
        }
        judged.acquisitions = spans.len();
        one_owner_a_fence(&spans)?;
        no_instant_twice(&spans)?;
        fences_grow(&spans)?;
        none_after_a_newer(&spans)?;
        Ok(judged)
    }
}

impl Event {
    fn shows(&self) -> bool {
        matches!(self.said, Said::Mine | Said::Renewed)
    }
}

fn in_order(who: &str, events: &[Event]) -> Result<(), String> {
    let mut last = 0;
    for event in events {
        if event.entry < last || event.back < event.entry {
            return Err(format!("{who} went back in time at [{event}]"));
        }
        last = event.back;
    }
    Ok(())
}

/// Rule 4, and the spans for the others.
fn spans_of(who: &str, events: &[Event]) -> Result<Vec<Span>, String> {
    let mut spans: Vec<Span> = Vec::new();
    for event in events {
        let current = spans.last_mut().filter(|span| span.fence == event.fence);
        match (event.said, current) {
            (Said::Held, Some(span)) if span.over => {
                return Err(format!(
                    "{who} acquired a fence again that it had lost: [{event}]"
                ));
            }
            // Extended: held all the while, for the fence did not move.
            (Said::Held, Some(span)) => span.until = Some(event.entry),
            (Said::Held, None) => spans.push(Span {
                who: who.to_owned(),
                fence: event.fence,
                acquired: *event,
                until: None,
                over: false,
            }),
            (Said::Mine | Said::Renewed, Some(span)) if !span.over => {
                span.until = Some(event.entry)
            }
            (Said::Lost | Said::Released, Some(span)) => span.over = true,
            (Said::Lost, None) => {}
            (Said::Mine | Said::Renewed | Said::Released, _) => {
                return Err(format!(
                    "{who} holds what it does not hold (any more): [{event}]"
                ));
            }
        }
    }
    Ok(spans)
}

/// Rule 3.
fn one_owner_a_fence(spans: &[Span]) -> Result<(), String> {
    let mut owners: BTreeMap<u64, &str> = BTreeMap::new();
    for span in spans {
        match owners.insert(span.fence, &span.who) {
            Some(other) if other == span.who => {
                return Err(format!(
                    "{other} acquired fence {} twice, with another between",
                    span.fence
                ));
            }
            Some(other) => {
                return Err(format!(
                    "fence {} went to {other} and to {}",
                    span.fence, span.who
                ));
            }
            None => {}
        }
    }
    Ok(())
}

/// Rule 1.
fn no_instant_twice(spans: &[Span]) -> Result<(), String> {
    let mut shown: Vec<(u64, u64, &Span)> = spans
        .iter()
        .filter_map(|span| Some((span.acquired.back, span.until?, span)))
        .filter(|(from, until, _)| from <= until)
        .collect();
    shown.sort_by_key(|(from, until, _)| (*from, *until));
    // The span that reaches furthest among those that began earlier, for each process that is not its own.
    let mut reach: Vec<(u64, &Span)> = Vec::new();
    for (from, until, span) in shown {
        if let Some((_, other)) = reach
            .iter()
            .find(|(end, other)| *end >= from && other.who != span.who)
        {
            return Err(format!(
                "at {from} both hold: {} with fence {} and {} with fence {}",
                other.who, other.fence, span.who, span.fence
            ));
        }
        reach.retain(|(_, other)| other.who != span.who);
        reach.push((until, span));
    }
    Ok(())
}

/// Rule 2.
fn fences_grow(spans: &[Span]) -> Result<(), String> {
    let mut by_return: Vec<&Span> = spans.iter().collect();
    by_return.sort_by_key(|span| span.acquired.back);
    let mut by_entry: Vec<&Span> = spans.iter().collect();
    by_entry.sort_by_key(|span| span.acquired.entry);
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<&Span> = None;
    for span in by_entry {
        while let Some(earlier) =
            returned.next_if(|earlier| earlier.acquired.back < span.acquired.entry)
        {
            if highest.is_none_or(|highest| highest.fence < earlier.fence) {
                highest = Some(earlier);
            }
        }
        if let Some(earlier) = highest.filter(|earlier| earlier.fence >= span.fence) {
            return Err(format!(
                "{} acquired fence {} before {} was asked, who got fence {}",
                earlier.who, earlier.fence, span.who, span.fence
            ));
        }
    }
    Ok(())
}

/// Rule 5.
fn none_after_a_newer(spans: &[Span]) -> Result<(), String> {
    let mut by_return: Vec<&Span> = spans.iter().collect();
    by_return.sort_by_key(|span| span.acquired.back);
    let mut by_until: Vec<(u64, &Span)> = spans
        .iter()
        .filter_map(|span| Some((span.until?, span)))
        .collect();
    by_until.sort_by_key(|(until, _)| *until);
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<&Span> = None;
    for (until, span) in by_until {
        while let Some(newer) = returned.next_if(|newer| newer.acquired.back < until) {
            if highest.is_none_or(|highest| highest.fence < newer.fence) {
                highest = Some(newer);
            }
        }
        if let Some(newer) = highest.filter(|newer| newer.fence > span.fence) {
            return Err(format!(
                "at {until} fence {} of {} was still shown as held, though {} had acquired {} by {}",
                span.fence, span.who, newer.who, newer.fence, newer.acquired.back
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
