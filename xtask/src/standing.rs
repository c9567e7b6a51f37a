//! Judges what workers observed of one succession: whether any run of a correct one can look like this.
//!
//! Each worker notes the boot clock whenever it knows that it has a place: while it waits, and while it works. Between two
//! such moments of one stay it had a place all the while, unless they, or the one before, lie so far apart that the place
//! may have lapsed in between. The rules:
//!
//! 1. no two work at any instant;
//! 2. no more than four have a place at any instant;
//! 3. whoever works later works under a larger fence.

use std::{collections::BTreeMap, fmt, str::FromStr};

/// What a worker knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knew {
    /// It has a place where it waits.
    Waits,
    /// It works, under this fence.
    Works(u64),
    /// It has no place.
    Left,
}

/// Something that a worker knew, and when by the boot clock, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) at_ns: u64,
    pub(crate) knew: Knew,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.knew {
            Knew::Waits => write!(f, "{} waits", self.at_ns),
            Knew::Works(fence) => write!(f, "{} works {fence}", self.at_ns),
            Knew::Left => write!(f, "{} left", self.at_ns),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let bad = || format!("no moment: {line:?}");
        let number = |text: &str| text.parse().map_err(|_| bad());
        let words: Vec<&str> = line.split(' ').collect();
        let (at, knew) = match words[..] {
            [at, "waits"] => (at, Knew::Waits),
            [at, "works", fence] => (at, Knew::Works(number(fence)?)),
            [at, "left"] => (at, Knew::Left),
            _ => return Err(bad()),
        };
        let at_ns = number(at)?;
        Ok(Self { at_ns, knew })
    }
}

/// What all workers observed.
#[derive(Debug, Clone)]
pub(crate) struct Standings {
    /// Longer apart, and a place may have lapsed in between.
    gap_ns: u64,
    workers: BTreeMap<String, Vec<Moment>>,
}

/// What a judged history held, so that an empty one is not taken for a good one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    /// How often somebody began to work.
    pub(crate) reigns: usize,
    /// The most that had a place at one instant.
    pub(crate) most: usize,
}

/// For so long somebody had a place.
#[derive(Debug, Clone, Copy)]
struct Stay<'a> {
    who: &'a str,
    from_ns: u64,
    to_ns: u64,
}

impl Standings {
    pub(crate) fn new(gap_ns: u64) -> Self {
        Self {
            gap_ns,
            workers: BTreeMap::new(),
        }
    }

    /// Adds the moments that `text` lists, one a line; a last line that its writer did not finish is dropped.
    pub(crate) fn add_lines(&mut self, who: impl Into<String>, text: &str) -> Result<(), String> {
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let moments: Result<Vec<Moment>, String> = whole.lines().map(str::parse).collect();
        self.workers.entry(who.into()).or_default().extend(moments?);
        Ok(())
    }

    /// The first rule that is broken, in words; or how much was judged.
    pub(crate) fn judge(&self) -> Result<Judged, String> {
        let mut reigns: BTreeMap<u64, Stay<'_>> = BTreeMap::new();
        let mut stays = Vec::new();
        for (who, moments) in &self.workers {
            for moment in moments {
                if let Knew::Works(fence) = moment.knew {
                    let at_ns = moment.at_ns;
                    let reign = reigns.entry(fence).or_insert(Stay {
                        who,
                        from_ns: at_ns,
                        to_ns: at_ns,
                    });
                    if reign.who != who {
                        return Err(format!("{} and {who} work under fence {fence}", reign.who));
                    }
                    reign.to_ns = at_ns;
                }
            }
            stays.extend(self.stays(who, moments)?);
        }
        let by_fence: Vec<(&u64, &Stay<'_>)> = reigns.iter().collect();
        for pair in by_fence.windows(2) {
            let [(fence, earlier), (newer, later)] = pair else {
                unreachable!("windows of two")
            };
            if earlier.to_ns >= later.from_ns {
                return Err(format!(
                    "{} works under fence {newer} from {} on, {} under {fence} until {}",
                    later.who, later.from_ns, earlier.who, earlier.to_ns
                ));
            }
        }
        Ok(Judged {
            reigns: reigns.len(),
            most: most_at_once(&stays)?,
        })
    }

    /// A stay for each two moments that lie close enough together. And close to the one before: a worker that stood still
    /// before it noted a moment knew nothing at it.
    fn stays<'a>(&self, who: &'a str, moments: &[Moment]) -> Result<Vec<Stay<'a>>, String> {
        if let Some(pair) = moments
            .windows(2)
            .find(|pair| pair[1].at_ns < pair[0].at_ns)
        {
            return Err(format!("{who} went back in time at [{}]", pair[1]));
        }
        let near = |one: Moment, next: Moment| next.at_ns - one.at_ns <= self.gap_ns;
        let stay = |three: &[Moment]| {
            let &[before, from, to] = three else {
                unreachable!("windows of three")
            };
            let has_place = ![from, to].iter().any(|moment| moment.knew == Knew::Left);
            (has_place && near(before, from) && near(from, to)).then_some(Stay {
                who,
                from_ns: from.at_ns,
                to_ns: to.at_ns,
            })
        };
        Ok(moments.windows(3).filter_map(stay).collect())
    }
}

/// Rule 2.
fn most_at_once(stays: &[Stay<'_>]) -> Result<usize, String> {
    // Of two at one instant the end comes first: a worker's next stay begins where the last one ended.
    let mut changes: Vec<(u64, bool, &str)> = Vec::new();
    for stay in stays {
        changes.push((stay.from_ns, true, stay.who));
        changes.push((stay.to_ns, false, stay.who));
    }
    changes.sort_unstable();
    let mut there: BTreeMap<&str, u32> = BTreeMap::new();
    let mut most = 0;
    for (at_ns, begins, who) in changes {
        let count = there.entry(who).or_insert(0);
        match begins {
            true => *count += 1,
            false => *count = count.saturating_sub(1),
        }
        if *count == 0 {
            there.remove(who);
        }
        if there.len() > 4 {
            let who: Vec<&str> = there.into_keys().collect();
            return Err(format!("at {at_ns} five have a place: {}", who.join(", ")));
        }
        most = most.max(there.len());
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::{Judged, Moment, Standings};

    fn judged(workers: &[(&str, &str)]) -> Result<Judged, String> {
        let mut standings = Standings::new(100);
        for (who, text) in workers {
            // Each has just begun to ask for a place.
            let lines = format!("1 left\n{}\n", text.replace(", ", "\n"));
            standings.add_lines(*who, &lines).unwrap();
        }
        standings.judge()
    }

    fn broken(workers: &[(&str, &str)], why: &str) {
        let reason = judged(workers).unwrap_err();
        assert!(reason.contains(why), "{reason}");
    }

    #[test]
    fn a_takeover_with_standbys_is_good_and_counted() {
        let judged = judged(&[
            ("a", "10 works 1, 50 works 1, 60 left"),
            ("b", "20 waits, 70 waits, 80 works 2"),
            ("c", "30 waits, 40 waits, 45 left"),
        ]);
        let right = Judged { reigns: 2, most: 3 };
        assert_eq!(judged, Ok(right));
    }

    #[test]
    fn two_that_work_at_one_instant_are_found() {
        broken(
            &[("a", "10 works 1, 50 works 1"), ("b", "50 works 2")],
            "b works under fence 2 from 50 on, a under 1 until 50",
        );
        // However long the one was not heard of in between: it knew that it worked, in the end.
        broken(
            &[("a", "10 works 1, 9000 works 1"), ("b", "400 works 2")],
            "b works under fence 2 from 400 on",
        );
    }

    #[test]
    fn a_smaller_fence_afterwards_is_found() {
        broken(
            &[("a", "10 works 2"), ("b", "50 works 1")],
            "a works under fence 2 from 10 on",
        );
    }

    #[test]
    fn a_fence_of_two_workers_is_found() {
        broken(&[("a", "10 works 1"), ("b", "50 works 1")], "a and b work");
    }

    #[test]
    fn five_with_a_place_at_one_instant_are_found_and_four_are_good() {
        let mut five = vec![("a", "10 works 1, 60 works 1")];
        five.extend([("b", "11 waits, 59 waits"), ("c", "12 waits, 58 waits")]);
        five.extend([("d", "13 waits, 57 waits"), ("e", "56 waits, 70 waits")]);
        broken(&five, "at 56 five have a place: a, b, c, d, e");
        five[4].1 = "58 waits, 70 waits";
        assert_eq!(judged(&five), Ok(Judged { reigns: 1, most: 4 }));
    }

    #[test]
    fn one_that_was_not_heard_of_for_long_may_have_lost_its_place_meanwhile() {
        let mut five = vec![("a", "10 waits, 190 waits")];
        five.extend([("b", "11 waits, 59 waits"), ("c", "12 waits, 58 waits")]);
        five.extend([("d", "13 waits, 57 waits"), ("e", "14 waits, 56 waits")]);
        assert_eq!(judged(&five).unwrap().most, 4);
        five[0].1 = "10 waits, 100 waits, 190 waits";
        broken(&five, "five have a place");
        // Nor is it known of the first moment after such a time.
        five[0].1 = "10 waits, 120 waits, 190 waits";
        for (index, text) in ["121 waits, 130 waits", "122 waits, 131 waits"]
            .into_iter()
            .enumerate()
        {
            five[index + 1].1 = text;
        }
        assert_eq!(judged(&five).unwrap().most, 2);
    }

    #[test]
    fn one_that_left_has_no_place_until_it_says_so_again() {
        let mut five = vec![("a", "10 waits, 15 left, 80 waits, 90 waits")];
        five.extend([("b", "16 waits, 59 waits"), ("c", "17 waits, 58 waits")]);
        five.extend([("d", "18 waits, 57 waits"), ("e", "19 waits, 56 waits")]);
        assert_eq!(judged(&five).unwrap().most, 4);
    }

    #[test]
    fn time_that_goes_back_is_found_and_a_torn_last_line_is_dropped() {
        broken(&[("a", "10 waits, 9 waits")], "a went back in time");
        let mut standings = Standings::new(100);
        standings.add_lines("a", "10 works 1\n12 wor").unwrap();
        assert_eq!(standings.judge().unwrap().reigns, 1);
        assert!(standings.add_lines("a", "12 wor\n").is_err());
    }

    #[test]
    fn a_moment_is_read_as_it_is_written() {
        for line in ["7 waits", "8 works 9", "10 left"] {
            let moment: Moment = line.parse().unwrap();
            assert_eq!(moment.to_string(), line);
        }
    }
}
