//! Check that builds are reproducible.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::make;
use super::release::Release;
use crate::command::command;
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};

/// Builds twice from copies of the sources and compares the files. The folders' paths differ in
/// length and depth. The files of the first build are left in `out`.
pub(super) fn run(report: &mut Report, root: &Path, release: &Release, out: &Path) {
    let mut made = Vec::new();
    for name in ["a", "another/longer-b"] {
        let mut copy = PathBuf::new();
        let copied = report.step(format!("sources in {name}"), || {
            copy = Metadata::load(root)?.target_directory.join("verify").join(name);
            copy_sources(root, &copy)?;
            Ok(CheckOutcome::Passed)
        });
        let files = if made.is_empty() { out.to_owned() } else { copy.join("target/packages") };
        if !copied || !make(report, &copy, release, None, &files) {
            return;
        }
        made.push(files);
    }
    report.step("both are equal", || {
        let differences = differences(&made[0], &made[1])?;
        if differences.is_empty() {
            return Ok(CheckOutcome::Passed);
        }
        Ok(CheckOutcome::Failed(differences.join("; ")))
    });
}

/// Copies the files that git has or would take, so that nothing else gets into a build. Results of
/// an earlier run are removed: they would be compared with themselves.
fn copy_sources(root: &Path, copy: &Path) -> Result<()> {
    if copy.exists() {
        fs::remove_dir_all(copy)?;
    }
    let listed = command(root, "git ls-files --cached --others --exclude-standard -z").output()?;
    if !listed.status.success() {
        bail!("git can't list the sources: {}", String::from_utf8_lossy(&listed.stderr).trim());
    }
    for name in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        // Git still has the file, but it is deleted.
        if !from.exists() {
            continue;
        }
        fs::create_dir_all(to.parent().unwrap_or(copy))?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {name}"))?;
    }
    Ok(())
}

/// Returns the files that differ between both folders, and where they begin to differ.
fn differences(one: &Path, other: &Path) -> Result<Vec<String>> {
    let names = |folder: &Path| -> Result<BTreeSet<String>> {
        let entries = fs::read_dir(folder)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    };
    let (mut found, all) = (Vec::new(), (names(one)?, names(other)?));
    if all.0.is_empty() {
        bail!("{} is empty", one.display());
    }
    for name in all.0.union(&all.1) {
        let (Ok(first), Ok(second)) = (fs::read(one.join(name)), fs::read(other.join(name))) else {
            found.push(format!("{name} is in one of them only"));
            continue;
        };
        if first != second {
            let at = first.iter().zip(&second).position(|(one, other)| one != other);
            let at = at.unwrap_or_else(|| first.len().min(second.len()));
            found.push(format!("{name} differs from byte {at} on"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_differ_or_are_missing_are_named() {
        let folder = std::env::temp_dir().join(format!("xtask-verify-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for (place, name, text) in [
            (&one, "same", "text"),
            (&other, "same", "text"),
            (&one, "changed", "abcd"),
            (&other, "changed", "abXd"),
            (&one, "longer", "ab"),
            (&other, "longer", "abc"),
            (&other, "alone", ""),
        ] {
            fs::create_dir_all(place).unwrap();
            fs::write(place.join(name), text).unwrap();
        }
        let found = differences(&one, &other).unwrap();
        let expected = [
            "alone is in one of them only",
            "changed differs from byte 2 on",
            "longer differs from byte 2 on",
        ];
        assert_eq!(found, expected);
        fs::remove_dir_all(&one).unwrap();
        fs::create_dir_all(&one).unwrap();
        assert!(differences(&one, &other).is_err(), "nothing equals nothing");
        fs::remove_dir_all(folder).unwrap();
    }
}
