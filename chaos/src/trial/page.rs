//! Writes results into a page of the documentation.

use std::path::Path;

use anyhow::Context as _;

/// Replaces the text between the marks of `name`, or adds marks and text at the end of the page.
/// The marks are `<!-- begin NAME -->` and `<!-- end NAME -->`, each on a line of its own.
///
/// # Errors
/// Returns an error if the page cannot be read or written, or has only one of the two marks.
pub fn write_section(page: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let before = std::fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let after = replaced(&before, name, text)?;
    std::fs::write(page, after).with_context(|| page.display().to_string())
}

fn replaced(page: &str, name: &str, text: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- begin {name} -->"), format!("<!-- end {name} -->"));
    let section = format!("{begin}\n\n{}\n\n{end}", text.trim());
    match (page.split_once(&begin), page.split_once(&end)) {
        (Some((before, _)), Some((_, after))) => Ok(format!("{before}{section}{after}")),
        (None, None) => Ok(format!("{}\n\n{section}\n", page.trim_end())),
        _ => anyhow::bail!("the page has only one of the marks of {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_added_once_and_then_replaced() {
        let first = replaced("# Page\n", "a", "one").unwrap();
        let second = replaced(&first, "b", "other").unwrap();
        let third = replaced(&second, "a", "two").unwrap();
        assert!(third.starts_with("# Page\n\n<!-- begin a -->\n\ntwo\n\n<!-- end a -->\n"));
        assert!(third.contains("other") && !third.contains("one"));
        assert_eq!(replaced(&third, "a", "two").unwrap(), third);
        assert!(replaced("<!-- begin a -->", "a", "").is_err());
    }
}
