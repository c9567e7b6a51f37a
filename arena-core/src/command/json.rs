//! As much JSON as one line needs.

use std::fmt::{Display, Write as _};

/// An object, written field by field.
#[derive(Debug)]
#[must_use = "it is text when it has ended"]
pub struct Object(String);

impl Object {
    /// One without fields.
    #[expect(
        clippy::new_without_default,
        reason = "an object is begun, and not a value"
    )]
    pub fn new() -> Self {
        Self("{".into())
    }

    /// Anything that is JSON as it is displayed: a number, a boolean, an object; `None` is null.
    pub fn field(mut self, name: &str, value: Option<impl Display>) -> Self {
        self.key(name);
        match value {
            Some(value) => write!(self.0, "{value}").expect("a String takes everything"),
            None => self.0.push_str("null"),
        }
        self
    }

    /// A list of what is JSON as it is displayed.
    pub fn list(self, name: &str, values: impl IntoIterator<Item = String>) -> Self {
        let values: Vec<String> = values.into_iter().collect();
        self.field(name, Some(format!("[{}]", values.join(","))))
    }

    /// A string; under `NAME_base64` when it is not UTF-8.
    pub fn bytes(mut self, name: &str, value: Option<&[u8]>) -> Self {
        let Some(bytes) = value else {
            return self.field(name, None::<bool>);
        };
        let (name, text) = match str::from_utf8(bytes) {
            Ok(text) => (name.to_owned(), text.to_owned()),
            Err(_) => (format!("{name}_base64"), base64(bytes)),
        };
        self.key(&name);
        self.0.push_str(&string(&text));
        self
    }

    /// Its text.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&string(name));
        self.0.push(':');
    }
}

/// A string's text.
#[must_use]
pub fn string(text: &str) -> String {
    let mut out = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            '\0'..='\x1f' => {
                write!(out, "\\u{:04x}", u32::from(char)).expect("a String takes everything");
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes(padded);
        for digit in 0..4 {
            let index = bits >> (18 - 6 * digit) & 63;
            match digit <= chunk.len() {
                true => out.push(char::from(DIGITS[index as usize])),
                false => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_as_everybody_does() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn strings_are_escaped_and_bytes_that_are_none_are_base64() {
        let object = Object::new()
            .bytes("a", Some(b"\"\\\n\xc3\xa4"))
            .bytes("b", Some(b"\xff\xfe"))
            .bytes("c", None)
            .list("d", [string("x"), "7".into()])
            .field("e", Some(7))
            .field("f", None::<bool>)
            .bytes("g", Some(b"\xff"));
        let expected = r#"{"a":"\"\\\u000aä","b_base64":"//4=","c":null,"d":["x",7],"e":7,"f":null,"g_base64":"/w=="}"#;
        assert_eq!(object.end(), expected);
    }
}
