//! Exit codes of the process.

use std::process::ExitCode;

use spillway_config::ConfigErrors;
use spillway_node::StartError;

use crate::output::WrongUsage;

/// Exit code EX_USAGE of sysexits.h: the config is wrong, and another try won't help.
pub(crate) const CONFIG: u8 = 64;
/// Exit code of wrong usage, as clap ends the process for most of it.
const USAGE: u8 = 2;

/// Returns the exit code of a command that has failed.
pub(crate) fn of(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(match () {
        () if is_of_config(error) => CONFIG,
        () if error.is::<WrongUsage>() => USAGE,
        () => 1,
    })
}

/// Returns true if the error is in the config or in a file that it names.
fn is_of_config(error: &anyhow::Error) -> bool {
    let is_geo = |error: &StartError| matches!(error, StartError::Geo(_));
    error.is::<ConfigErrors>() || error.downcast_ref().is_some_and(is_geo)
}
