//! Debian package, tarball and image root: mostly equal files in different wrappings.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use super::release::Release;
use crate::command::{self, command, first_line};
use crate::report::CheckOutcome;

/// Largest binary of profile `dist`, in bytes, since every new node pulls it with its image.
const BINARY_BYTES_MAX: u64 = 44 << 20;

/// File of a package.
struct PackagePart {
    /// Source, below the workspace root; the binary is below the folder of all results.
    from: &'static str,
    to: &'static str,
    mode: u32,
}

const BINARY: &str = "spillway";
const UNIT: &str = "deploy/systemd/spillway.service";
const CONFIG: &str = "deploy/debian/spillway.toml";
/// Changelog of the package, beside the program's own.
const CHANGELOG: &str = "usr/share/doc/spillway/changelog.Debian";

/// Files of the Debian package.
const DEB: [PackagePart; 6] = [
    PackagePart { from: BINARY, to: "usr/bin/spillway", mode: 0o755 },
    PackagePart { from: UNIT, to: "lib/systemd/system/spillway.service", mode: 0o644 },
    PackagePart { from: CONFIG, to: "etc/spillway/spillway.toml", mode: 0o644 },
    PackagePart {
        from: "deploy/debian/copyright",
        to: "usr/share/doc/spillway/copyright",
        mode: 0o644,
    },
    PackagePart { from: "CHANGELOG.md", to: "usr/share/doc/spillway/changelog", mode: 0o644 },
    PackagePart {
        from: "deploy/debian/lintian-overrides",
        to: "usr/share/lintian/overrides/spillway",
        mode: 0o644,
    },
];

/// Shells with completions in the Debian package, and where Debian's shells look for them.
const COMPLETIONS: [(&str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions", "spillway"),
    ("zsh", "usr/share/zsh/vendor-completions", "_spillway"),
    ("fish", "usr/share/fish/vendor_completions.d", "spillway.fish"),
];

/// Files and scripts that dpkg uses, beside `control`.
const DEB_CONTROL: [PackagePart; 4] = [
    PackagePart { from: "deploy/debian/conffiles", to: "DEBIAN/conffiles", mode: 0o644 },
    PackagePart { from: "deploy/debian/postinst", to: "DEBIAN/postinst", mode: 0o755 },
    PackagePart { from: "deploy/debian/prerm", to: "DEBIAN/prerm", mode: 0o755 },
    PackagePart { from: "deploy/debian/postrm", to: "DEBIAN/postrm", mode: 0o755 },
];

/// Files of the tarball, which `install.sh` puts into place on machines without dpkg.
const TARBALL: [PackagePart; 6] = [
    PackagePart { from: BINARY, to: "spillway", mode: 0o755 },
    PackagePart { from: UNIT, to: "spillway.service", mode: 0o644 },
    PackagePart { from: CONFIG, to: "spillway.toml", mode: 0o644 },
    PackagePart { from: "deploy/tarball/install.sh", to: "install.sh", mode: 0o755 },
    PackagePart { from: "LICENSE", to: "LICENSE", mode: 0o644 },
    PackagePart { from: "CHANGELOG.md", to: "CHANGELOG.md", mode: 0o644 },
];

/// All files of the container image, which has no base image.
const ROOT_FILES: [PackagePart; 2] = [
    PackagePart { from: BINARY, to: "usr/bin/spillway", mode: 0o755 },
    PackagePart { from: CONFIG, to: "etc/spillway/spillway.toml", mode: 0o644 },
];

/// Folders of the image that belong to the node. Volumes mounted there get this owner, too.
const NODE_FOLDERS: [&str; 2] = ["etc/spillway/keys", "var/lib/spillway"];
/// User id of the node in the image, which has no file that names it.
const NODE_USER: u32 = 65_532;

/// Temporary folder of files to pack, removed when dropped.
struct Stage(PathBuf);

/// Packs the tarball.
///
/// # Errors
/// Returns an error if the binary is too large, or there is no GNU tar.
pub(super) fn tarball(root: &Path, release: &Release, out: &Path) -> Result<CheckOutcome> {
    let size = fs::metadata(out.join(BINARY))?.len();
    if release.profile == "dist" && size > BINARY_BYTES_MAX {
        bail!("the binary has {size} bytes; at most {BINARY_BYTES_MAX} are allowed");
    }
    let name = format!("spillway-{}-{}-linux", release.version, release.machine());
    let stage = Stage::new(out)?;
    stage.fill(root, out, &name, &TARBALL)?;
    stage.date(release.epoch)?;
    let file = out.join(format!("{name}.tar"));
    tar(&stage, release, &file, 0, &[&name])?;
    compress(&file, release)?;
    Ok(CheckOutcome::Passed)
}

/// Packs the root folder of a container's image.
///
/// # Errors
/// Returns an error if there is no GNU tar.
pub(super) fn image_root(root: &Path, release: &Release, out: &Path) -> Result<CheckOutcome> {
    let stage = Stage::new(out)?;
    stage.fill(root, out, "", &ROOT_FILES)?;
    for folder in NODE_FOLDERS {
        fs::create_dir_all(stage.0.join(folder))?;
        set_mode(&stage.0.join(folder), 0o700)?;
    }
    // The folders in between have come with the umask of this machine.
    set_mode(&stage.0.join("var"), 0o755)?;
    set_mode(&stage.0.join("var/lib"), 0o755)?;
    stage.date(release.epoch)?;
    let file = out.join("image-root.tar");
    let shared: Vec<&str> = ROOT_FILES.iter().map(|part| part.to).collect();
    tar(&stage, release, &file, 0, &shared)?;
    tar(&stage, release, &file, NODE_USER, &NODE_FOLDERS)?;
    compress(&file, release)?;
    Ok(CheckOutcome::Passed)
}

/// Adds the staged files under `names` to an archive, with `owner` as user and group.
fn tar(stage: &Stage, release: &Release, file: &Path, owner: u32, names: &[&str]) -> Result<()> {
    let line = format!(
        "tar --append --format=gnu --sort=name --numeric-owner --owner={owner} --group={owner}"
    );
    let mut tar = command(&stage.0, &line);
    tar.arg("--file").arg(file).args(names);
    pack(&mut tar, release)
}

/// Packs the Debian package; skipped without dpkg-deb.
///
/// # Errors
/// Returns an error if a file is missing.
pub(super) fn deb(root: &Path, release: &Release, out: &Path) -> Result<CheckOutcome> {
    if first_line(&mut command(root, "dpkg-deb --version")).is_none() {
        return Ok(CheckOutcome::Skipped(
            "no dpkg-deb here: the tarball has the same files".to_owned(),
        ));
    }
    let architecture = release.debian_architecture()?;
    let version = format!("{}-{}", release.version, release.revision);
    let stage = Stage::new(out)?;
    stage.fill(root, out, "", &DEB)?;
    stage.fill(root, out, "", &DEB_CONTROL)?;
    stage.fill_from_binary(out, release)?;
    // Folder for keys that only the node may read.
    fs::create_dir(stage.0.join("etc/spillway/keys"))?;
    set_mode(&stage.0.join("etc/spillway/keys"), 0o755)?;
    let date = format!("date --utc --rfc-email --date=@{}", release.epoch);
    let date = first_line(command(root, &date).env("LC_ALL", "C")).context("cannot start date")?;
    let known = [("@VERSION@", version.clone()), ("@DATE@", date)];
    stage.fill_in(root, "deploy/debian/changelog", CHANGELOG, &known)?;
    compress(&stage.0.join(CHANGELOG), release)?;
    compress(&stage.0.join("usr/share/doc/spillway/changelog"), release)?;
    let known = [
        ("@VERSION@", version.clone()),
        ("@ARCHITECTURE@", architecture.to_owned()),
        ("@INSTALLED_SIZE@", size_kib(&stage.0)?.to_string()),
    ];
    stage.fill_in(root, "deploy/debian/control", "DEBIAN/control", &known)?;
    stage.date(release.epoch)?;
    let packed = if release.profile == "dist" { "-Zxz -z9" } else { "-Zgzip -z1" };
    let mut dpkg_deb = command(out, &format!("dpkg-deb --root-owner-group {packed} --build"));
    // Several threads would split the data in other places than one thread.
    dpkg_deb.env("DPKG_DEB_THREADS_MAX", "1").arg(&stage.0);
    dpkg_deb.arg(out.join(format!("spillway_{version}_{architecture}.deb")));
    pack(&mut dpkg_deb, release)?;
    Ok(CheckOutcome::Passed)
}

/// Sets the mode of a file, whatever this machine's umask is.
pub(super) fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the mode of {}", path.display()))
}

/// Sets the modification time of a file or folder, in seconds since 1970.
pub(super) fn date(path: &Path, epoch: u64) -> Result<()> {
    let opened = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok(opened.set_modified(UNIX_EPOCH + Duration::from_secs(epoch))?)
}

/// Returns a template with its gaps filled.
fn filled(template: &str, known: &[(&str, String)]) -> String {
    known.iter().fold(template.to_owned(), |text, (gap, value)| text.replace(gap, value))
}

/// Compresses a file in place: slowly and well for deployment, quickly for tests.
fn compress(file: &Path, release: &Release) -> Result<()> {
    let is_small = fs::metadata(file)?.len() < 1 << 20;
    let level = if is_small || release.profile == "dist" { 9 } else { 1 };
    // Without --no-name, gzip would write the name and date of its input.
    let line = format!("gzip --no-name -{level}");
    pack(command(Path::new("/"), &line).arg(file), release)
}

/// Returns the size of the files in `folder`, in KiB, each rounded up.
fn size_kib(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let (path, data) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        sum += if data.is_dir() { size_kib(&path)? } else { data.len().div_ceil(1024) };
    }
    Ok(sum)
}

impl Stage {
    fn new(out: &Path) -> Result<Self> {
        let stage = out.join(".stage");
        fs::create_dir(&stage).with_context(|| format!("cannot make {}", stage.display()))?;
        set_mode(&stage, 0o755)?;
        Ok(Self(stage))
    }

    /// Copies `parts` into the folder `below`. All users may read their folders.
    fn fill(&self, root: &Path, out: &Path, below: &str, parts: &[PackagePart]) -> Result<()> {
        for part in parts {
            let from = if part.from == BINARY { out } else { root }.join(part.from);
            let to = self.0.join(below).join(part.to);
            if let Some(folder) = Path::new(below).join(part.to).parent().and_then(Path::to_str) {
                self.folder(folder)?;
            }
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            set_mode(&to, part.mode)?;
        }
        Ok(())
    }

    /// Writes the texts that the binary generates: manual pages, and completions for shells.
    fn fill_from_binary(&self, out: &Path, release: &Release) -> Result<()> {
        let binary = out.join(BINARY);
        let pages = self.folder("usr/share/man/man1")?;
        command::output(Command::new(&binary).arg("man").arg(&pages))?;
        for page in fs::read_dir(&pages)? {
            let page = page?.path();
            set_mode(&page, 0o644)?;
            compress(&page, release)?;
        }
        for (shell, folder, file) in COMPLETIONS {
            let file = self.folder(folder)?.join(file);
            fs::write(&file, command::output(Command::new(&binary).args(["completions", shell]))?)?;
            set_mode(&file, 0o644)?;
        }
        Ok(())
    }

    /// Makes a folder that all users may read.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder)?;
        for above in folder.ancestors().take_while(|above| *above != self.0) {
            set_mode(above, 0o755)?;
        }
        Ok(folder)
    }

    /// Writes a template with its gaps filled.
    fn fill_in(&self, root: &Path, from: &str, to: &str, known: &[(&str, String)]) -> Result<()> {
        let template = fs::read_to_string(root.join(from));
        let template = template.with_context(|| format!("cannot read {from}"))?;
        fs::write(self.0.join(to), filled(&template, known))?;
        set_mode(&self.0.join(to), 0o644)
    }

    /// Dates everything staged. Folders come last, because a new file changes its folder's date.
    fn date(&self, epoch: u64) -> Result<()> {
        fn all(path: &Path, epoch: u64) -> Result<()> {
            if path.is_dir() {
                for entry in fs::read_dir(path)? {
                    all(&entry?.path(), epoch)?;
                }
            }
            date(path, epoch)
        }
        all(&self.0, epoch)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // If this fails, the next run reports the folder that is in its way.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs a packing tool with the date of `release`.
fn pack(command: &mut Command, release: &Release) -> Result<()> {
    // Sorting and dates must be equal on all machines.
    command.env("SOURCE_DATE_EPOCH", release.epoch.to_string()).env("LC_ALL", "C").env("TZ", "UTC");
    command::run(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_wherever_they_are() {
        let known = [("@VERSION@", "1.2-3".to_owned()), ("@ARCHITECTURE@", "arm64".to_owned())];
        let text = filled("V: @VERSION@\nA: @ARCHITECTURE@\n# @VERSION@ <a@b.org>\n", &known);
        assert_eq!(text, "V: 1.2-3\nA: arm64\n# 1.2-3 <a@b.org>\n");
    }

    #[test]
    fn a_stage_has_fixed_modes_and_dates_and_is_gone_afterwards() {
        let out = std::env::temp_dir().join(format!("xtask-stage-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        fs::write(out.join("spillway"), "#!").unwrap();
        set_mode(&out.join("spillway"), 0o600).unwrap();
        let stage = Stage::new(&out).unwrap();
        stage.fill(&out, &out, "", &DEB[..1]).unwrap();
        stage.date(1_700_000_000).unwrap();
        for (path, mode) in [("usr", 0o755), ("usr/bin", 0o755), ("usr/bin/spillway", 0o755)] {
            let data = fs::metadata(stage.0.join(path)).unwrap();
            assert_eq!(data.permissions().mode() & 0o7777, mode, "{path}");
            let dated = data.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
            assert_eq!(dated.as_secs(), 1_700_000_000, "{path}");
        }
        assert_eq!(size_kib(&stage.0).unwrap(), 1);
        drop(stage);
        assert!(!out.join(".stage").exists());
        fs::remove_dir_all(out).unwrap();
    }
}
