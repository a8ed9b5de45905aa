//! Calls of the `spillway` program that all tools make alike.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Runs `spillway certs` with these arguments; `folder` is its `--dir`.
///
/// # Errors
/// Returns an error with the program's output if it fails.
pub fn certs(spillway: &Path, folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(spillway);
    command.arg("certs").args(arguments).arg("--dir").arg(folder).stdin(Stdio::null());
    let output = command.output().with_context(|| format!("run {}", spillway.display()))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "spillway certs {}: {printed}", arguments.join(" "));
    Ok(())
}

/// Returns the arguments that make `spillway` emulate a replica of `model` at `listen`: a machine of
/// this profile, whose times are multiplied by `time_scale`.
#[must_use]
pub fn emulate(listen: SocketAddr, model: &str, profile: &str, time_scale: f64) -> Vec<String> {
    let (listen, scale) = (listen.to_string(), time_scale.to_string());
    ["emulate", "--listen", &listen, "--model", model, "--profile", profile, "--time-scale", &scale]
        .map(str::to_owned)
        .into()
}
