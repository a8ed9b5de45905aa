//! Input of the checks: every tracked text file, and cargo's view of the workspace.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use crate::command::command;
use crate::metadata::Metadata;

/// Files of the tree, and cargo's view of the workspace.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) files: Vec<TextFile>,
    /// Paths of files that are no text, such as pictures.
    pub(crate) binaries: Vec<String>,
    pub(crate) metadata: Metadata,
}

/// UTF-8 file that git tracks, or would track.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Path relative to the workspace root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Tree {
    /// Reads the tree at `root`.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let (mut files, mut binaries) = (Vec::new(), Vec::new());
        for path in tracked(root)? {
            // Skips files that are tracked but deleted.
            let Ok(bytes) = fs::read(root.join(&path)) else { continue };
            match String::from_utf8(bytes) {
                Ok(text) => files.push(TextFile { path, text }),
                Err(_) => binaries.push(path),
            }
        }
        Ok(Self { files, binaries, metadata: Metadata::load(root)? })
    }

    /// Returns the file at `path`, if there is one.
    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }
}

impl TextFile {
    /// Returns the last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Returns the part of the name after the last dot; empty if there is none.
    pub(crate) fn extension(&self) -> &str {
        self.name().rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Returns the lines with their numbers, counted from 1.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

fn tracked(root: &Path) -> Result<Vec<String>> {
    // Includes new files, so that a finding comes before the commit.
    let output = command(root, "git ls-files -z --cached --others --exclude-standard")
        .stdin(Stdio::null())
        .output()
        .context("cannot start git, which knows the tracked files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("a tracked path is not UTF-8")?;
    Ok(text.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
pub(crate) mod testing {
    //! Trees for tests of checks.

    use super::*;

    /// Creates a tree of `files` as (path, text), without packages.
    pub(crate) fn tree(files: &[(&str, &str)]) -> Tree {
        let metadata = serde_json::json!({
            "packages": [], "workspace_members": [], "resolve": { "nodes": [] },
            "target_directory": "/tree/target", "workspace_root": "/tree",
        });
        tree_with(files, metadata)
    }

    /// Creates a tree of `files` and the answer of `cargo metadata`.
    pub(crate) fn tree_with(files: &[(&str, &str)], metadata: serde_json::Value) -> Tree {
        let files = files
            .iter()
            .map(|&(path, text)| TextFile { path: path.to_owned(), text: text.to_owned() })
            .collect();
        let metadata = serde_json::from_value(metadata).unwrap();
        Tree { files, binaries: Vec::new(), metadata }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::tree;

    #[test]
    fn name_and_extension_are_taken_from_the_last_part() {
        let tree = tree(&[("a.b/run", ""), ("a/lib.rs", "")]);
        assert_eq!((tree.files[0].name(), tree.files[0].extension()), ("run", ""));
        assert_eq!((tree.files[1].name(), tree.files[1].extension()), ("lib.rs", "rs"));
    }
}
