//! What the commands of these crates share, for themselves alone: how they write JSON, names and errors, and read a
//! length of time.

pub mod json;

use std::error::Error;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

/// The error and what caused it.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// A name for people: without what would move their cursor, and so that no two names look the same.
#[must_use]
pub fn shown(name: &OsStr) -> String {
    let mut out = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => out.push_str("\\\\"),
                _ if char.is_control() => out.extend(char.escape_default()),
                _ => out.push(char),
            }
        }
        out.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    out
}

/// `200ms`, `0.2`, `30s`, `5m`, `2h`.
///
/// # Errors
///
/// What is wrong with it.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [
        ("ms", 1e-3),
        ("us", 1e-6),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3_600.0),
        ("d", 86_400.0),
        ("", 1.0),
    ];
    let wrong = || format!("{text:?} is no duration: write 200ms, 0.2, 30s, 5m or 2h");
    let (number, seconds) = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if number.is_empty() || !number.bytes().all(is_part) {
        return Err(wrong());
    }
    let number: f64 = number.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("{text:?} is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_and_bytes_that_are_no_text_are_escaped() {
        for (name, text) in [
            (&b"nightly \xc3\xa4"[..], "nightly ä"),
            (b"\x1b[2J\n\x7f", "\\u{1b}[2J\\n\\u{7f}"),
            (b"\xc2\x9b", "\\u{9b}"),
            (b"a\xff\\", "a\\xff\\\\"),
        ] {
            assert_eq!(shown(OsStr::from_bytes(name)), text);
        }
    }

    #[test]
    fn durations_are_read_as_they_are_written() {
        for (text, ms) in [
            ("200ms", 200),
            ("0.2", 200),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1.5h", 5_400_000),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in [
            "", "s", "-1", "1e3", "5 m", "inf", "NaN", "1.2.3", "5x", "9e99h",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("99999999999999999999999h").is_err());
    }
}
