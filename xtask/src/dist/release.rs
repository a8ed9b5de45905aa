//! Release: what names and dates of all packages come from.

use anyhow::{Result, bail};

/// Facts that names and dates of the files come from.
#[derive(Debug, Clone)]
pub(crate) struct Release {
    /// Version in the workspace manifest.
    pub(super) version: String,
    pub(super) revision: u32,
    pub(super) profile: String,
    /// Target triple of the machine that the files are for, e.g. `x86_64-unknown-linux-gnu`.
    pub(super) target: String,
    /// Date of all files, in seconds since 1970: that of the commit.
    pub(super) epoch: u64,
    /// Name of the build in the version that the program prints: the commit.
    pub(super) build: String,
}

impl Release {
    /// Returns the processor in the form of `uname -m`.
    pub(crate) fn machine(&self) -> &str {
        self.target.split('-').next().unwrap_or_default()
    }

    /// Returns the processor in the form of Debian.
    pub(super) fn debian_architecture(&self) -> Result<&'static str> {
        match self.machine() {
            "x86_64" => Ok("amd64"),
            "aarch64" => Ok("arm64"),
            other => bail!("packages are made for x86_64 and aarch64, not for {other}"),
        }
    }
}
