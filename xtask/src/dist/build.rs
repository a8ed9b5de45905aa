//! Static binary, which needs nothing of the machine that it runs on.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::release::Release;
use crate::command::{self, command, first_line};
use crate::metadata::Metadata;

/// Separator of flags in CARGO_ENCODED_RUSTFLAGS, which allows spaces in paths.
const SEPARATOR: &str = "\u{1f}";

/// Folders of this machine, and their names in the binary. Real paths would reveal who built it,
/// and builds in different folders would differ.
struct Renamed(Vec<(String, String)>);

/// Counts of what runs, made by `cargo xtask pgo` on the processor that is in the name.
const COUNTS: &str = "crates/spillway/dist-x86_64.profdata";

/// Part that the counts of a run have in a build (profile-guided optimisation).
pub(crate) enum Counts {
    /// Code is laid out by the counts that the repository has.
    Use,
    /// The binary counts, and adds to the counts in this folder when it ends.
    Make(PathBuf),
}

/// Returns the place of the counts for a build.
pub(crate) fn counts_path(root: &Path) -> PathBuf {
    root.join(COUNTS)
}

/// Builds the binary, with the `book` of the docs inside, and returns its path.
///
/// The build names its target, though it is this machine: flags then don't apply to procedural
/// macros, which can't be static, and the usual builds stay valid.
///
/// # Errors
/// Returns an error if the binary can't be built, or is not static.
pub(crate) fn static_binary(
    root: &Path,
    release: &Release,
    counts: &Counts,
    book: Option<&Path>,
) -> Result<PathBuf> {
    let target_directory = Metadata::load(root)?.target_directory;
    let renamed = Renamed::on_this_machine(root, &target_directory)?;
    let Release { profile, target, epoch, build, .. } = release;
    let mut flags = rust_flags(&renamed);
    match counts {
        Counts::Make(folder) => flags.push(format!("-Cprofile-generate={}", folder.display())),
        Counts::Use if has_counts(release) => {
            let counts = kept_counts(root, &target_directory)?;
            flags.push(format!("-Cprofile-use={}", counts.display()));
        }
        Counts::Use => {}
    }
    let line = format!(
        "cargo build --locked --package spillway --bin spillway --profile {profile} --target {target}"
    );
    let mut cargo = command(root, &line);
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR))
        .env(format!("CFLAGS_{}", target.replace('-', "_")), c_flags(&renamed)?)
        .env("SOURCE_DATE_EPOCH", epoch.to_string())
        // Sources that are copied to be built again have no commit.
        .env("SPILLWAY_BUILD", build)
        // Empty for none.
        .env("SPILLWAY_BOOK", book.unwrap_or_else(|| Path::new("")))
        // Flags of this machine would change the built files.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET");
    command::run(&mut cargo)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let binary = target_directory.join(target).join(folder).join("spillway");
    need_static(root, &binary)?;
    Ok(binary)
}

/// Returns true if counts are kept for a build. Names of functions depend on cargo's profile, so
/// those of one are of no use to another.
pub(crate) fn has_counts(release: &Release) -> bool {
    release.profile == "dist" && release.machine() == "x86_64"
}

/// Returns a copy of the counts that is named by its content: cargo only rebuilds if its flags
/// change.
fn kept_counts(root: &Path, target_directory: &Path) -> Result<PathBuf> {
    let counts = counts_path(root);
    let hash = first_line(command(root, "git hash-object --no-filters --").arg(&counts));
    let hash = hash.with_context(|| format!("cannot read {}", counts.display()))?;
    let copy = target_directory.join("pgo").join(hash).with_extension("profdata");
    std::fs::create_dir_all(target_directory.join("pgo"))?;
    std::fs::copy(&counts, &copy).with_context(|| format!("cannot copy {COUNTS}"))?;
    Ok(copy)
}

/// Fails if `binary` needs a dynamic loader.
fn need_static(root: &Path, binary: &Path) -> Result<()> {
    let mut readelf = command(root, "readelf --program-headers --wide");
    let shown = readelf.arg(binary).env("LC_ALL", "C").output();
    let shown = shown.context("cannot start readelf (Debian: apt-get install binutils)")?;
    if !shown.status.success() || shown.stdout.is_empty() {
        bail!("readelf can't read {}", binary.display());
    }
    // This header names the dynamic loader.
    if String::from_utf8_lossy(&shown.stdout).contains("INTERP") {
        bail!("{} is not static", binary.display());
    }
    Ok(())
}

fn rust_flags(renamed: &Renamed) -> Vec<String> {
    let mut flags: Vec<String> =
        ["-Ctarget-feature=+crt-static", "-Cstrip=symbols", "-Cdebuginfo=0"]
            .map(str::to_owned)
            .into();
    flags.extend(renamed.0.iter().map(|(from, to)| format!("--remap-path-prefix={from}={to}")));
    flags
}

/// Returns the flags for the C code of some crates, whose build scripts split flags at spaces.
fn c_flags(renamed: &Renamed) -> Result<String> {
    if let Some((path, _)) = renamed.0.iter().find(|(from, _)| from.contains(' ')) {
        bail!("a folder with a space in its path can't be built in: {path}");
    }
    let flags = renamed.0.iter().map(|(from, to)| format!("-ffile-prefix-map={from}={to}"));
    Ok(flags.collect::<Vec<_>>().join(" "))
}

impl Renamed {
    /// Returns the folders with their names. Of several that match, compilers take the last one.
    fn on_this_machine(root: &Path, target_directory: &Path) -> Result<Self> {
        let cargo_home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
        let cargo_home = cargo_home.context("neither CARGO_HOME nor HOME is set")?;
        let sysroot = first_line(&mut command(root, "rustc --print sysroot"));
        let sysroot = sysroot.context("cannot ask rustc where it is")?;
        let pairs = [
            (root.to_owned(), "/spillway"),
            (target_directory.to_owned(), "/target"),
            (cargo_home, "/cargo"),
            (PathBuf::from(sysroot), "/rust"),
        ];
        Ok(Self(
            pairs.map(|(from, to)| (from.to_string_lossy().into_owned(), to.to_owned())).into(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn renamed(root: &str) -> Renamed {
        Renamed(vec![(root.to_owned(), "/spillway".to_owned())])
    }

    #[test]
    fn both_compilers_are_told_other_names_for_the_folders() {
        let folders = renamed("/src/spillway");
        let flags = rust_flags(&folders);
        assert_eq!(flags.last().unwrap(), "--remap-path-prefix=/src/spillway=/spillway");
        assert_eq!(c_flags(&folders).unwrap(), "-ffile-prefix-map=/src/spillway=/spillway");
    }

    #[test]
    fn a_path_that_the_c_compiler_would_misread_is_refused() {
        let spaced = renamed("/src/my projects");
        assert!(c_flags(&spaced).unwrap_err().to_string().contains("my projects"));
    }

    #[test]
    fn a_dynamic_binary_is_told_from_a_static_one() {
        // The binary of this test is dynamic.
        let own = std::env::current_exe().unwrap();
        let error = need_static(Path::new("/"), &own).unwrap_err();
        assert!(error.to_string().contains("is not static"), "{error}");
    }
}
