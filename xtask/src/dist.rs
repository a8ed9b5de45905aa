//! `cargo xtask dist`: builds the installed files, for the machine that it runs on.
//!
//! A static binary, a Debian package, a tarball, an SBOM, and checksums. Builds are reproducible:
//! one commit gives equal bytes on all machines, and `--verify` checks that with two builds in two
//! folders.

pub(crate) mod build;
mod package;
mod release;
mod sbom;
mod verify;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::book;
use crate::command::{command, first_line};
use crate::metadata::Metadata;
use crate::report::{CheckOutcome, Report};
use build::Counts;
use release::Release;

/// Budgets of the binary in MiB: of the deployed one, and of a build without optimisation, which CI
/// makes.
const SIZE_MIB_MAX: u64 = 60;
const SIZE_MIB_MAX_DEV: u64 = 115;

/// What is built, and where it goes.
#[derive(Debug, Args)]
pub(crate) struct DistArgs {
    /// Cargo's profile: `dist` is what is deployed, `dev` is built in a fraction of the time.
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Where the files go; emptied before. [default: packages in cargo's target folder]
    #[arg(long)]
    out: Option<PathBuf>,
    /// The Debian revision: a package with a higher one replaces those before it.
    #[arg(long, default_value_t = 1)]
    revision: u32,
    /// Packs this binary instead of building one.
    #[arg(long, conflicts_with = "verify")]
    binary: Option<PathBuf>,
    /// Builds twice, in two folders, and fails unless every file is equal.
    #[arg(long)]
    verify: bool,
}

/// Makes all files. Returns true if that worked and, if asked for, both builds were equal.
pub(crate) fn run(root: &Path, args: &DistArgs, json: bool) -> Result<bool> {
    let metadata = Metadata::load(root)?;
    let out = args.out.clone().unwrap_or_else(|| metadata.target_directory.join("packages"));
    // Programs that pack run in other folders.
    let out = std::path::absolute(out)?;
    let release = release(root, &metadata, &args.profile, args.revision)?;
    let mut report = Report::default();
    if args.verify {
        verify::run(&mut report, root, &release, &out);
    } else {
        make(&mut report, root, &release, args.binary.as_deref(), &out);
    }
    report.finish(json)
}

/// Makes the files in `out`, from `binary` or by building one, which has the docs inside. Returns true
/// if that worked.
fn make(
    report: &mut Report,
    root: &Path,
    release: &Release,
    binary: Option<&Path>,
    out: &Path,
) -> bool {
    let has_book = binary.is_some() || book::make(report, root);
    has_book
        && report.step("static binary", || {
            empty(out)?;
            let built = match binary {
                Some(binary) => binary.to_owned(),
                None => {
                    build::static_binary(root, release, &Counts::Use, Some(&book::folder(root)?))?
                }
            };
            let binary = out.join("spillway");
            fs::copy(&built, &binary)
                .with_context(|| format!("cannot copy {}", built.display()))?;
            package::set_mode(&binary, 0o755)?;
            package::date(&binary, release.epoch)?;
            Ok(CheckOutcome::Passed)
        })
        && report.step("size of the binary", || check_size(&out.join("spillway"), &release.profile))
        && report.step("sbom", || sbom::write(root, release, out))
        && report.step("tarball", || package::tarball(root, release, out))
        && report.step("image root", || package::image_root(root, release, out))
        && report.step("debian package", || package::deb(root, release, out))
        && report.step("checksums", || checksums(out))
}

/// Checks that a binary is no larger than its budget, so that the author of a change sees the
/// growth.
fn check_size(binary: &Path, profile: &str) -> Result<CheckOutcome> {
    let mib_max = if profile == "dev" { SIZE_MIB_MAX_DEV } else { SIZE_MIB_MAX };
    let mib = fs::metadata(binary)?.len() >> 20;
    eprintln!("{mib} MiB");
    if mib > mib_max {
        bail!(
            "the binary has {mib} MiB, more than {mib_max}: look for features and dependencies that it does \
             not need, or raise the budget in xtask/src/dist.rs"
        );
    }
    Ok(CheckOutcome::Passed)
}

/// Empties a folder of packages or creates it, so that no file of an earlier run is left. Fails if
/// the folder has other files.
fn empty(out: &Path) -> Result<()> {
    let is_ours = |path: &Path| path.join("SHA256SUMS").exists();
    if out.exists() && fs::read_dir(out)?.next().is_some() {
        if !is_ours(out) {
            bail!("{} has other files: name an empty folder with --out", out.display());
        }
        fs::remove_dir_all(out)?;
    }
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))
}

fn checksums(out: &Path) -> Result<CheckOutcome> {
    let mut names: Vec<String> = fs::read_dir(out)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    // A folder has no order of its own, and this file, too, is to be equal on all machines.
    names.sort();
    let mut sums = command(out, "sha256sum --");
    let printed = sums.args(names).output().context("cannot start sha256sum")?;
    if !printed.status.success() {
        bail!("sha256sum failed: {}", String::from_utf8_lossy(&printed.stderr).trim());
    }
    fs::write(out.join("SHA256SUMS"), printed.stdout)?;
    for line in fs::read_to_string(out.join("SHA256SUMS"))?.lines() {
        eprintln!("{line}");
    }
    Ok(CheckOutcome::Passed)
}

/// Returns the release that is built with cargo's `profile` on this machine.
pub(crate) fn release(
    root: &Path,
    metadata: &Metadata,
    profile: &str,
    revision: u32,
) -> Result<Release> {
    let spillway = metadata.member("spillway").context("no package is called spillway")?;
    let target = first_line(&mut command(root, "rustc --print host-tuple"))
        .context("cannot ask rustc which machine this is")?;
    Ok(Release {
        version: spillway.version.clone(),
        revision,
        profile: profile.to_owned(),
        target,
        epoch: epoch(root)?,
        build: build(root),
    })
}

/// Returns SPILLWAY_BUILD, by which packagers name their builds, or else the commit.
fn build(root: &Path) -> String {
    let said = std::env::var("SPILLWAY_BUILD").ok().filter(|name| !name.is_empty());
    let commit = || first_line(&mut command(root, "git rev-parse --short=12 HEAD"));
    said.or_else(commit).unwrap_or_else(|| "unknown".to_owned())
}

/// Returns SOURCE_DATE_EPOCH, as reproducible-builds.org defines it, or else the commit's time.
fn epoch(root: &Path) -> Result<u64> {
    let said = std::env::var("SOURCE_DATE_EPOCH").ok();
    let text = said.or_else(|| first_line(&mut command(root, "git log -1 --format=%ct")));
    let text = text.context("no commit to date the files by: set SOURCE_DATE_EPOCH")?;
    text.parse().with_context(|| format!("SOURCE_DATE_EPOCH is no number of seconds: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-dist-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_folder_with_other_files_is_left_alone() {
        let out = folder("out");
        empty(&out).unwrap();
        fs::write(out.join("thesis.txt"), "years of work").unwrap();
        assert!(empty(&out).is_err());
        assert!(out.join("thesis.txt").exists());
        fs::write(out.join("SHA256SUMS"), "").unwrap();
        empty(&out).unwrap();
        assert!(!out.join("thesis.txt").exists(), "a folder of packages is made anew");
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn checksums_name_every_file_once_in_order() {
        let out = folder("sums");
        for name in ["b", "a"] {
            fs::write(out.join(name), "").unwrap();
        }
        checksums(&out).unwrap();
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let sums = fs::read_to_string(out.join("SHA256SUMS")).unwrap();
        assert_eq!(sums, format!("{nothing}  a\n{nothing}  b\n"));
        fs::remove_dir_all(out).unwrap();
    }
}
