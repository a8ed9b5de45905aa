//! Rule for names of records, such as replicas, tenants and keys.

/// Longest name of a record in bytes.
pub const RECORD_NAME_BYTES_MAX: usize = 64;

/// Returns true if `text` can name a record: 1 to 64 letters, digits, hyphens, underscores and dots.
/// Such a name needs no quotes in a path, a header, a file name or a shell.
#[must_use]
pub fn is_record_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=RECORD_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns `text` as the name of a record: with hyphens in place of characters that a name can't
/// have, and cut to 64 bytes, with `number` at its end, if it is longer.
#[must_use]
pub fn to_record_name(text: &str, number: u32) -> String {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    let plain = text.chars().map(|it| if is_plain(it) { it } else { '-' });
    // Brackets of an address leave hyphens in a row.
    let mut name = String::with_capacity(text.len());
    for character in plain {
        if !(character == '-' && name.ends_with('-')) {
            name.push(character);
        }
    }
    if name.len() > RECORD_NAME_BYTES_MAX {
        let end = format!("-{number:08x}");
        name.truncate(RECORD_NAME_BYTES_MAX - end.len());
        name.push_str(&end);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for name in ["gpu-a", "10.0.0.1-8000", "A_1", &"x".repeat(64)] {
            assert!(is_record_name(name), "{name}");
        }
        for text in ["", "a b", "10.0.0.1:8000", "gpu/a", "größe", &"x".repeat(65)] {
            assert!(!is_record_name(text), "{text}");
        }
    }

    #[test]
    fn any_text_becomes_a_name_and_long_ones_stay_apart() {
        assert_eq!(to_record_name("workers-10.0.0.1:8000", 0), "workers-10.0.0.1-8000");
        assert_eq!(to_record_name("workers-[fd00::1]:8000", 0), "workers-fd00-1-8000");
        assert_eq!(to_record_name("w-gpu-0.pods.:8000", 0), "w-gpu-0.pods.-8000");
        let long = "w".repeat(70);
        let (one, other) = (to_record_name(&long, 0x1f), to_record_name(&long, 0x2f));
        assert!(one.ends_with("-0000001f") && is_record_name(&one) && one != other, "{one}");
    }
}
