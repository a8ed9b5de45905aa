//! Parser of Prometheus and OpenMetrics text that finds a few numbers in it.
//!
//! The parser builds no tree and keeps nothing: it reads line by line and skips a line with another
//! name at the end of that name. Lines that are not valid are skipped too, because one bad exporter
//! in a server must not hide the rest of its page.
//! The reader of tests (`tests/src/page.rs`) is another one on purpose: it is strict, since it
//! judges pages that this project writes.

use std::borrow::Cow;

/// Sample of a metric.
#[derive(Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a [u8],
    /// Text between the braces.
    pub(super) labels: &'a [u8],
    /// Finite number.
    pub(super) value: f64,
}

/// Returns the samples of `page` whose name `is_wanted`.
pub(super) fn samples<'a>(
    page: &'a [u8],
    is_wanted: impl Fn(&[u8]) -> bool,
) -> impl Iterator<Item = Sample<'a>> {
    lines(page).filter_map(move |line| {
        let end = memchr::memchr3(b'{', b' ', b'\t', line)?;
        let (name, rest) = line.split_at(end);
        if !is_wanted(name) {
            return None;
        }
        sample(name, rest)
    })
}

fn lines(page: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr::memchr_iter(b'\n', page).chain(std::iter::once(page.len())).filter_map(move |end| {
        let line = page[start..end].trim_ascii();
        start = (end + 1).min(page.len());
        // Help and type lines begin with `#`.
        (line.first().is_some_and(|first| *first != b'#')).then_some(line)
    })
}

fn sample<'a>(name: &'a [u8], rest: &'a [u8]) -> Option<Sample<'a>> {
    let rest = rest.trim_ascii_start();
    let (labels, rest) = match rest.strip_prefix(b"{") {
        Some(rest) => rest.split_at(labels_end(rest)?),
        None => (&rest[..0], rest),
    };
    let rest = rest.strip_prefix(b"}").unwrap_or(rest).trim_ascii_start();
    // A time stamp or an exemplar may follow.
    let token = rest.split(u8::is_ascii_whitespace).next()?;
    let value: f64 = std::str::from_utf8(token).ok()?.parse().ok()?;
    value.is_finite().then_some(Sample { name, labels, value })
}

/// Returns the position of the closing brace. Braces in quotes do not count.
fn labels_end(rest: &[u8]) -> Option<usize> {
    let mut is_quoted = false;
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'}', b'"', b'\\', rest.get(at..)?)?;
        match rest[at] {
            b'}' if !is_quoted => return Some(at),
            b'"' => is_quoted = !is_quoted,
            // The next byte is escaped.
            b'\\' => at += 1,
            _ => {}
        }
        at += 1;
    }
}

/// Iterator over the labels of a sample. It ends at the first label that is not valid; the rest of
/// the text stays in the field.
#[derive(Debug)]
pub(super) struct Labels<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a [u8], Cow<'a, [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_ascii_start();
        let equals = memchr::memchr(b'=', rest)?;
        let name = rest[..equals].trim_ascii();
        let quoted = rest[equals + 1..].trim_ascii_start().strip_prefix(b"\"")?;
        let end = quote_end(quoted)?;
        let behind = quoted[end + 1..].trim_ascii_start();
        let behind = match behind.first() {
            None => behind,
            Some(b',') => &behind[1..],
            Some(_) => return None,
        };
        self.0 = behind;
        Some((name, unescaped(&quoted[..end])))
    }
}

fn quote_end(quoted: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', quoted.get(at..)?)?;
        if quoted[at] == b'"' {
            return Some(at);
        }
        // An escaped byte never ends the text.
        at += 2;
    }
}

fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (byte, byte == &b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => plain.push(b'\n'),
                Some(escaped) => plain.push(*escaped),
                None => {}
            },
            (byte, false) => plain.push(*byte),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(page: &str) -> Vec<(String, String, f64)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        samples(page.as_bytes(), |_| true)
            .map(|sample| (text(sample.name), text(sample.labels), sample.value))
            .collect()
    }

    fn values(page: &str) -> Vec<f64> {
        read(page).into_iter().map(|(_, _, value)| value).collect()
    }

    #[test]
    fn samples_are_read_with_and_without_labels_time_stamps_and_exemplars() {
        let page = "# HELP a b\n# TYPE a gauge\na 1\nb{c=\"d\"} 2.5e1\nc\t3 1700000000000\n\
                    d{e=\"}{\\\"\"} +4 # {trace=\"x\"} 9 1.0\ne {f=\"g\"} 5\n# EOF\n";
        let expected = [
            ("a", "", 1.0),
            ("b", "c=\"d\"", 25.0),
            ("c", "", 3.0),
            ("d", "e=\"}{\\\"\"", 4.0),
            ("e", "f=\"g\"", 5.0),
        ];
        let expected =
            expected.map(|(name, labels, value)| (name.to_owned(), labels.to_owned(), value));
        assert_eq!(read(page), expected);
        assert_eq!(read(&page.replace('\n', "\r\n")), expected, "CRLF");
    }

    #[test]
    fn lines_that_are_none_hide_no_others() {
        let page =
            "a\n{\n}\nb{ 1\nb{c=\"d} 1\nc one\nd{} \n\u{0}\u{ff}\n= = =\na{b=\"c\"}1\nlast 7";
        assert_eq!(values(page), [1.0, 7.0]);
    }

    #[test]
    fn what_is_no_finite_number_is_no_sample() {
        assert_eq!(values("a NaN\nb +Inf\nc -Inf\nd nan\ne 1e999\nf 0x10\ng 2"), [2.0]);
    }

    #[test]
    fn labels_end_where_they_can_not_be_understood() {
        let mut labels = Labels(br#"a="b" , c="d\"\\\n", e=f"#);
        let mut next = || labels.next().map(|(name, value)| (name, value.into_owned()));
        assert_eq!(next(), Some((&b"a"[..], b"b".to_vec())));
        assert_eq!(next(), Some((&b"c"[..], b"d\"\\\n".to_vec())));
        assert_eq!(next(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(page in proptest::collection::vec(any::<u8>(), 0..400)) {
            for sample in samples(&page, |_| true) {
                prop_assert!(sample.value.is_finite());
                Labels(sample.labels).for_each(drop);
            }
        }

        #[test]
        fn text_that_looks_like_a_page_is_read_without_a_panic(page in r#"([a-c#]{0,2}[{]?([a-b]="[\\"n}]{0,3}",?)?[} ]?[-0-9.eN]{0,4}[\r\n ]{0,2}){0,12}"#) {
            for sample in samples(page.as_bytes(), |_| true) {
                prop_assert!(sample.value.is_finite());
                Labels(sample.labels).for_each(drop);
            }
        }

        #[test]
        fn what_is_written_is_read_back(
            value in any::<f64>().prop_filter("finite", |value| value.is_finite()),
            label in "[a-zA-Z\\\\\"{}, =\n]{0,12}",
            noise in "[a-z{}\"=# ]{0,20}",
        ) {
            let escaped = label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let page = format!("#{noise}\nwanted{{x=\"1\",l=\"{escaped}\"}} {value:?}\n{noise}\n");
            let found: Vec<_> = samples(page.as_bytes(), |name| name == b"wanted").collect();
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(found[0].value, value);
            let read = Labels(found[0].labels).find(|(name, _)| *name == b"l");
            prop_assert_eq!(read.map(|(_, value)| value.into_owned()), Some(label.into_bytes()));
        }

        #[test]
        fn a_page_cut_anywhere_gives_the_samples_before_the_cut(cut in 0usize..64) {
            let page = b"aa{b=\"c\"} 11\r\naa{b=\"d\"} 12\r\naa 13\r\naa{x=\"y\"} 14\r\n# EOF\r\n";
            let whole: Vec<_> = samples(page, |_| true).collect();
            let cut = &page[..cut.min(page.len())];
            let lines = cut.iter().filter(|byte| **byte == b'\n').count().min(4);
            let found: Vec<_> = samples(cut, |_| true).collect();
            prop_assert!(found.len() >= lines);
            prop_assert_eq!(&found[..lines], &whole[..lines]);
        }
    }
}
