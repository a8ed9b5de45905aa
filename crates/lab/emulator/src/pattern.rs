//! Random texts that match a regular expression.

use regex_syntax::hir::{Class, Hir, HirKind};

/// Largest number of repetitions beyond the required ones.
const SPARE_REPETITIONS: u32 = 3;
/// Readable characters, which are preferred if a class has any of them.
const READABLE: std::ops::RangeInclusive<u32> = 0x21..=0x7E;

/// Returns a text that `pattern` matches, of about `bytes_max` bytes at most. Returns `None` if the
/// pattern is invalid, or if it looks ahead or back.
pub(crate) fn sample(pattern: &str, rng: &mut fastrand::Rng, bytes_max: usize) -> Option<String> {
    let parsed = regex_syntax::parse(pattern).ok()?;
    let mut text = String::new();
    write(&parsed, rng, bytes_max, &mut text);
    Some(text)
}

fn write(pattern: &Hir, rng: &mut fastrand::Rng, bytes_max: usize, text: &mut String) {
    match pattern.kind() {
        // Anchors hold anyway, since the text is complete. A word boundary may not hold.
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(&String::from_utf8_lossy(&literal.0)),
        HirKind::Class(class) => text.extend(character(class, rng)),
        HirKind::Capture(capture) => write(&capture.sub, rng, bytes_max, text),
        HirKind::Concat(parts) => {
            parts.iter().for_each(|part| write(part, rng, bytes_max, text));
        }
        HirKind::Alternation(parts) => {
            if let Some(part) = rng.choice(parts) {
                write(part, rng, bytes_max, text);
            }
        }
        HirKind::Repetition(repeated) => {
            let spare = repeated.max.map_or(SPARE_REPETITIONS, |max| max - repeated.min);
            let count = repeated.min + rng.u32(0..=spare.min(SPARE_REPETITIONS));
            for _ in 0..count {
                let before = text.len();
                write(&repeated.sub, rng, bytes_max, text);
                // An empty repetition adds nothing, however often it is made.
                if text.len() == before || text.len() >= bytes_max {
                    return;
                }
            }
        }
    }
}

/// Returns a character of a class, a readable one if the class has any.
fn character(class: &Class, rng: &mut fastrand::Rng) -> Option<char> {
    let ranges: Vec<(u32, u32)> = match class {
        Class::Unicode(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
        Class::Bytes(class) => {
            class.iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
    };
    let readable = ranges
        .iter()
        .map(|(from, to)| ((*from).max(*READABLE.start()), (*to).min(*READABLE.end())));
    let readable: Vec<(u32, u32)> = readable.filter(|(from, to)| from <= to).collect();
    let ranges = if readable.is_empty() { ranges } else { readable };
    let (from, to) = *rng.choice(&ranges)?;
    // A range may span the surrogates, which are no characters; the first of the range is one.
    char::from_u32(rng.u32(from..=to)).or_else(|| char::from_u32(from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_of_the_form_that_the_pattern_prescribes() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let mut text = |pattern: &str| sample(pattern, &mut rng, 1000).unwrap();
            let code = text(r"^[A-Z]{3}-\d{4}$");
            let (letters, digits) = code.split_once('-').unwrap();
            assert!(letters.len() == 3 && letters.bytes().all(|byte| byte.is_ascii_uppercase()));
            assert!(
                digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_digit()),
                "{code}"
            );
            assert!(["red", "blue"].contains(&text("(red|blue)").as_str()));
            assert!((2..=5).contains(&text(r"\w{2,}").len()));
            assert_eq!(text("größe?").trim_end_matches('e'), "größ");
            assert_ne!(text("[^a]"), "a");
        }
    }

    #[test]
    fn hostile_patterns_end_soon() {
        let mut rng = fastrand::Rng::with_seed(1);
        for pattern in ["(){1000000}", "((a{1000}){1000}){1000}", "(((a*)*)*)*", "a{4000000000}"] {
            let text = sample(pattern, &mut rng, 1000).unwrap_or_default();
            assert!(text.len() < 3000, "{} bytes of {pattern}", text.len());
        }
        for pattern in ["(", "(?=a)b", "a{2,1}"] {
            assert_eq!(sample(pattern, &mut rng, 1000), None, "{pattern}");
        }
    }
}
