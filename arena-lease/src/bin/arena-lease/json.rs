//! As much JSON as one line of status needs.

use std::fmt::Write as _;

/// An object, written field by field.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".into())
    }

    /// A number, a boolean, an object: anything that is JSON as it is displayed; `None` is null.
    pub(crate) fn field(mut self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        self.key(name);
        match value {
            Some(value) => write!(self.0, "{value}").expect("a String takes everything"),
            None => self.0.push_str("null"),
        }
        self
    }

    /// A string; under `NAME_base64` when it is not UTF-8.
    pub(crate) fn bytes(mut self, name: &str, value: Option<&[u8]>) -> Self {
        match value.map(str::from_utf8) {
            Some(Err(_)) => {
                self.key(&format!("{name}_base64"));
                let encoded = base64(value.unwrap_or_default());
                self.string(&encoded);
            }
            Some(Ok(text)) => {
                self.key(name);
                self.string(text);
            }
            None => {
                self.key(name);
                self.0.push_str("null");
            }
        }
        self
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn key(&mut self, name: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.string(name);
        self.0.push(':');
    }

    fn string(&mut self, text: &str) {
        self.0.push('"');
        for char in text.chars() {
            match char {
                '"' | '\\' => self.0.extend(['\\', char]),
                '\0'..='\x1f' => {
                    write!(self.0, "\\u{:04x}", u32::from(char))
                        .expect("a String takes everything");
                }
                char => self.0.push(char),
            }
        }
        self.0.push('"');
    }
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
            .bytes("b", Some(b"\xff"))
            .bytes("c", None)
            .field("d", Some(7))
            .field("e", None::<bool>);
        let expected = r#"{"a":"\"\\\u000aä","b_base64":"/w==","c":null,"d":7,"e":null}"#;
        assert_eq!(object.end(), expected);
    }
}
