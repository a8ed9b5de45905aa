//! Parts of a page that a command makes, each between two marks that name the command.

use std::{fs, path::Path};

use anyhow::Context as _;

/// Checks that the page `file` can be read and has the marks of `maker`.
///
/// # Errors
/// Returns an error that names the missing part.
pub(crate) fn check(file: &Path, maker: &str) -> anyhow::Result<()> {
    read_and_replace(file, maker, "").map(drop)
}

/// Writes `made` between the marks of `maker` in the page `file`.
///
/// # Errors
/// Returns an error if the page has no such marks, or cannot be read or written.
pub(crate) fn write(file: &Path, maker: &str, made: &str) -> anyhow::Result<()> {
    let page = read_and_replace(file, maker, made)?;
    fs::write(file, page).with_context(|| format!("cannot write {}", file.display()))
}

fn read_and_replace(file: &Path, maker: &str, made: &str) -> anyhow::Result<String> {
    let shown = file.display();
    let page = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    replaced(&page, maker, made).with_context(|| {
        let [begin, end] = marks(maker);
        format!("{shown} has no lines `{}` and `{end}`", begin.trim_end())
    })
}

/// Returns `page` with `made` between the marks of `maker`; `None` without both of them.
fn replaced(page: &str, maker: &str, made: &str) -> Option<String> {
    let [begin, end] = marks(maker);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}{made}\n{end}{after}"))
}

fn marks(maker: &str) -> [String; 2] {
    [
        format!("<!-- begin: made by spillway-bench {maker} -->\n"),
        format!("<!-- end: made by spillway-bench {maker} -->"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_around_the_marks_of_one_maker_stays() {
        let part = |maker: &str, made: &str| {
            let [begin, end] = marks(maker);
            format!("{begin}{made}\n{end}\n")
        };
        let page = |made| format!("# P\n\n{}\n{}\n## More\n", part("a", "old"), part("b", made));
        assert_eq!(replaced(&page("old"), "b", "new"), Some(page("new")));
        assert_eq!(replaced("# P\n", "a", "new"), None);
    }
}
