//! Python packages of the client tests, in a folder of their own.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::command::{self, first_line};
use crate::report::CheckOutcome;

/// Python program that prints `ok` if the pinned packages have builds for this Python.
const PYTHON_CHECK: &str = "import sys, venv, ensurepip; print('ok' if (3, 11) <= sys.version_info[:2] <= (3, 12) else sys.version)";

/// Virtual environment that follows a `requirements.txt` beside it.
#[derive(Debug)]
pub(crate) struct Venv {
    folder: PathBuf,
    requirements: PathBuf,
    /// Copy of the requirements that the environment was made from.
    made_from: PathBuf,
}

impl Venv {
    /// Returns the environment `.venv` in `tests`, for the `requirements.txt` there.
    pub(crate) fn new(tests: PathBuf) -> Self {
        let folder = tests.join(".venv");
        let made_from = folder.join("made-from-requirements.txt");
        Self { requirements: tests.join("requirements.txt"), made_from, folder }
    }

    /// Returns a command for the Python interpreter of the environment.
    pub(crate) fn python(&self) -> Command {
        Command::new(self.folder.join("bin/python"))
    }

    /// Fails, naming what to install, unless a Python can make the environment.
    pub(crate) fn need_python(&self) -> Result<()> {
        match first_line(Command::new("python3").args(["-c", PYTHON_CHECK])).as_deref() {
            Some("ok") => Ok(()),
            Some(version) => bail!("python3 is {version}; the pinned packages need 3.11 or 3.12"),
            None => bail!(
                "python3 with venv is missing: install it (Debian: apt-get install python3-venv)"
            ),
        }
    }

    /// Rebuilds the environment unless it was made from the same requirements.
    pub(crate) fn prepare(&self) -> Result<CheckOutcome> {
        if self.is_current()? {
            eprintln!("{} is current", self.folder.display());
            return Ok(CheckOutcome::Passed);
        }
        command::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.folder))?;
        command::run(
            self.python()
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--no-deps", "--requirement"])
                .arg(&self.requirements),
        )?;
        // Written last, so that an interrupted environment is made again.
        fs::copy(&self.requirements, &self.made_from)
            .context("cannot mark the environment as made")?;
        Ok(CheckOutcome::Passed)
    }

    fn is_current(&self) -> Result<bool> {
        let wanted = fs::read(&self.requirements)
            .with_context(|| format!("cannot read {}", self.requirements.display()))?;
        match fs::read(&self.made_from) {
            Ok(made_from) => Ok(made_from == wanted),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).context("cannot read what the environment was made from"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a tests folder without any package to install.
    fn tests_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("requirements.txt"), "# nothing\n").unwrap();
        folder
    }

    #[test]
    fn an_environment_is_made_once_and_again_when_its_requirements_change() {
        let tests = tests_folder("venv");
        let venv = Venv::new(tests.clone());
        assert!(!venv.is_current().unwrap());
        fs::create_dir_all(&venv.folder).unwrap();
        fs::copy(&venv.requirements, &venv.made_from).unwrap();
        assert!(venv.is_current().unwrap());
        fs::write(&venv.requirements, "# changed\n").unwrap();
        assert!(!venv.is_current().unwrap());
        fs::remove_dir_all(tests).unwrap();
    }

    #[test]
    fn missing_requirements_are_an_error_and_not_an_empty_environment() {
        let tests = tests_folder("no-requirements");
        let venv = Venv::new(tests.clone());
        fs::remove_file(&venv.requirements).unwrap();
        let error = venv.prepare().unwrap_err();
        assert!(error.to_string().contains("requirements.txt"), "{error}");
        fs::remove_dir_all(tests).unwrap();
    }
}
