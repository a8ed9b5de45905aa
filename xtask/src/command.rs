//! Execution of other programs.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Interval at which a program with a time limit is polled.
const POLL: Duration = Duration::from_millis(50);

/// Builds a command that runs in the workspace root. `line` is split at spaces.
///
/// It does not inherit the variables that cargo sets for this program: build scripts would take
/// them for a change, and half of the workspace would be rebuilt between `cargo` and `cargo xtask`.
pub(crate) fn command(root: &Path, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(root);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs `command` and shows its output on stderr. Fails unless the program succeeds.
///
/// All output goes to stderr, because stdout belongs to the result that `--json` prints.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command
        // A program that asks something is to fail, not to wait for ever.
        .stdin(Stdio::null())
        .stdout(Stdio::from(io::stderr()))
        .status()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs `command` in a thread. Its output is kept until [`BackgroundCommand::finish`], so that it does
/// not mix with the output of other programs.
pub(crate) fn run_in_background(mut command: Command) -> BackgroundCommand {
    let shown = show(&command);
    let run = thread::spawn(move || command.stdin(Stdio::null()).output());
    BackgroundCommand { shown, run }
}

/// A program that runs beside others.
#[derive(Debug)]
pub(crate) struct BackgroundCommand {
    shown: String,
    run: thread::JoinHandle<io::Result<Output>>,
}

impl BackgroundCommand {
    /// Waits for the program's end and prints its output on stderr. Fails unless it succeeds.
    pub(crate) fn finish(self) -> Result<()> {
        let shown = self.shown;
        eprintln!("$ {shown}");
        let ended = self.run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let output = ended.with_context(|| format!("cannot start `{shown}`"))?;
        let mut stderr = io::stderr().lock();
        stderr.write_all(&output.stdout)?;
        stderr.write_all(&output.stderr)?;
        if !output.status.success() {
            bail!("`{shown}` failed ({})", output.status);
        }
        Ok(())
    }
}

/// Returns what `command` prints. Fails unless the program succeeds.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !output.status.success() {
        bail!("`{shown}` failed ({})", output.status);
    }
    Ok(output.stdout)
}

/// Returns the first line that `command` prints; `None` if it cannot be started or fails.
pub(crate) fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// Runs `command` silently and ends it after `limit`. Returns true if it succeeded in time.
pub(crate) fn succeeds_within(command: &mut Command, limit: Duration) -> Result<bool> {
    let shown = show(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if started.elapsed() > limit {
            child.kill()?;
            // An ended program stays in the table of processes until its parent waits for it.
            child.wait()?;
            return Ok(false);
        }
        thread::sleep(POLL);
    }
}

fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> &'static Path {
        Path::new(".")
    }

    #[test]
    fn a_program_is_not_told_which_package_started_it() {
        let told = |name: &str| first_line(&mut command(here(), &format!("printenv {name}")));
        for name in ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"] {
            assert!(std::env::var_os(name).is_some(), "cargo tells this test");
            assert_eq!(told(name), None, "{name}");
        }
        assert!(told("PATH").is_some(), "the rest is inherited");
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = run(&mut command(here(), "false --with=argument")).unwrap_err();
        assert!(error.to_string().starts_with("`false --with=argument` failed"), "{error}");
    }

    #[test]
    fn a_missing_program_is_an_error_that_names_it() {
        let error = run(&mut command(here(), "no-such-program-anywhere")).unwrap_err();
        assert!(error.to_string().contains("cannot start `no-such-program-anywhere`"), "{error}");
    }

    #[test]
    fn the_first_line_is_read_only_from_a_program_that_succeeds() {
        assert_eq!(first_line(&mut command(here(), "echo one two")).as_deref(), Some("one two"));
        assert_eq!(first_line(&mut command(here(), "false")), None);
        assert_eq!(first_line(&mut command(here(), "no-such-program-anywhere")), None);
    }

    #[test]
    fn a_program_that_outlives_its_limit_is_ended() {
        let started = Instant::now();
        let mut endless = command(here(), "tail -f /dev/null");
        assert!(!succeeds_within(&mut endless, Duration::from_millis(100)).unwrap());
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(succeeds_within(&mut command(here(), "true"), Duration::from_secs(10)).unwrap());
    }
}
