//! Delay of a program's disk, set while the program runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

/// Source of the library that is preloaded before the C library.
const FORCE: &str = include_str!("../../slow/force.c");

/// Extra time of each force (fsync) of a program, which can be set while the program runs.
#[derive(Debug)]
pub(crate) struct DiskDelay {
    library: PathBuf,
    delay: PathBuf,
    log: PathBuf,
}

impl DiskDelay {
    /// Compiles the library. Its files, named after `name`, are in `folder`.
    pub(crate) fn new(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let at = |ending| folder.join(format!("{name}.{ending}"));
        let (source, library) = (at("force.c"), at("force.so"));
        std::fs::write(&source, FORCE).context("write the library's source")?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source);
        let output = compiler.output().context("run cc, the C compiler")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "cc: {said}");
        let disk = Self { library, delay: at("force_ms"), log: at("forces") };
        disk.set(Duration::ZERO)?;
        Ok(disk)
    }

    /// Sets the extra time of each force from now on.
    pub(crate) fn set(&self, delay: Duration) -> anyhow::Result<()> {
        // A rename replaces the file in one step: the library reads it at any moment.
        let new = self.delay.with_extension("new");
        std::fs::write(&new, delay.as_millis().to_string()).context("write a delay")?;
        std::fs::rename(&new, &self.delay).context("name a delay")
    }

    /// Returns the arguments of `env` to put before a program; `env` keeps the process id.
    pub(crate) fn words(&self) -> Vec<String> {
        vec![
            format!("LD_PRELOAD={}", self.library.display()),
            format!("CHAOS_FORCE_MS={}", self.delay.display()),
            format!("CHAOS_FORCE_LOG={}", self.log.display()),
        ]
    }

    /// Returns the number of forces that were delayed so far.
    pub(crate) fn forces(&self) -> usize {
        std::fs::metadata(&self.log)
            .map_or(0, |file| usize::try_from(file.len()).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_program_with_a_slow_disk_takes_that_much_longer_for_each_force() {
        let folder = tempfile::tempdir().unwrap();
        let delay = DiskDelay::new(folder.path(), "dd").unwrap();
        for (conversion, delay_ms, forces) in
            [("fsync", 0, 0), ("notrunc", 200, 0), ("fsync", 200, 1), ("fdatasync", 200, 2)]
        {
            delay.set(Duration::from_millis(delay_ms)).unwrap();
            let mut command = Command::new("env");
            command.args(delay.words()).args(["dd", "if=/dev/zero", "count=1"]);
            let file = folder.path().join("file");
            command.arg(format!("of={}", file.display())).arg(format!("conv={conversion}"));
            let start = Instant::now();
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let took = start.elapsed();
            assert!(delay.forces() == 0 || took >= Duration::from_millis(200), "{took:?}");
            assert_eq!(delay.forces(), forces, "{conversion}");
        }
    }
}
