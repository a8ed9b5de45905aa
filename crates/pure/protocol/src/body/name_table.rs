//! Table of known names that finds a name like the most lenient engine would read it.

use std::borrow::Cow;

/// Number of lists of names; names of this length and longer share the last list.
const LENGTHS: usize = 32;
/// Index that ends a list.
const NONE: u8 = u8::MAX;

/// Known names, grouped by length. Most keys of a body are unknown, and most of these differ in
/// length from all but a few known names.
#[derive(Debug)]
pub(crate) struct NameTable<const N: usize> {
    names: [&'static str; N],
    /// Index of the first name of each length.
    first: [u8; LENGTHS],
    /// Index of the next name of the same length.
    next: [u8; N],
}

impl<const N: usize> NameTable<N> {
    /// Creates a table of fewer than 255 names in lower case ASCII.
    pub(crate) const fn new(names: [&'static str; N]) -> Self {
        assert!(N < NONE as usize);
        let mut first = [NONE; LENGTHS];
        let mut next = [NONE; N];
        // From the end, so that the first names of each length, which are the usual ones, come
        // first in their list.
        let mut at = N;
        while at > 0 {
            at -= 1;
            let list = list_of(names[at].len());
            next[at] = first[list];
            first[list] = at as u8;
        }
        Self { names, first, next }
    }

    pub(crate) fn names(&self) -> &[&'static str; N] {
        &self.names
    }

    /// Returns the index of the name that equals `key`, apart from the case of letters.
    pub(crate) fn find(&self, key: &str) -> Option<usize> {
        let key = folded(key);
        let initial = key.as_bytes().first()?.to_ascii_lowercase();
        let mut at = self.first[list_of(key.len())];
        while at != NONE {
            let index = usize::from(at);
            let name = self.names[index];
            if name.as_bytes().first() == Some(&initial) && name.eq_ignore_ascii_case(&key) {
                return Some(index);
            }
            at = self.next[index];
        }
        None
    }
}

const fn list_of(length: usize) -> usize {
    if length < LENGTHS { length } else { LENGTHS - 1 }
}

/// Returns the key with letters replaced that engines ignoring case take for ASCII letters: Unicode
/// folds the long s to `s` and the Kelvin sign to `k`.
pub(crate) fn folded(key: &str) -> Cow<'_, str> {
    if key.is_ascii() || !key.contains(['\u{17f}', '\u{212a}']) {
        return Cow::Borrowed(key);
    }
    Cow::Owned(key.replace('\u{17f}', "s").replace('\u{212a}', "k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: NameTable<4> =
        NameTable::new(["model", "a_name_that_is_longer_than_any_list", "stream", "max_tokens"]);

    #[test]
    fn names_are_found_whatever_case_and_whatever_letter_folds_to_theirs() {
        for key in ["model", "MODEL", "MoDeL"] {
            assert_eq!(TABLE.find(key), Some(0), "{key}");
        }
        assert_eq!(TABLE.find("A_Name_that_is_longer_than_any_list"), Some(1));
        for key in ["stream", "\u{17f}tream", "\u{17f}TREAM"] {
            assert_eq!(TABLE.find(key), Some(2), "{key}");
        }
        for key in ["max_tokens", "max_to\u{212a}ens", "max_to\u{212a}en\u{17f}"] {
            assert_eq!(TABLE.find(key), Some(3), "{key}");
        }
        for key in
            ["", "modem", "models", "mode", "\u{17f}", "a_name_that_is_longer_than_any_lisT!"]
        {
            assert_eq!(TABLE.find(key), None, "{key}");
        }
    }
}
