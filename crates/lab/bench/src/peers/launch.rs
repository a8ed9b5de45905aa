//! Way to start a peer.

use std::{ffi::OsString, path::Path};

/// Config, arguments and environment of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// Name and text of the config file, which is written into the folder that the peer runs in.
    pub(super) config: Option<(&'static str, String)>,
    /// Arguments after the program.
    pub(super) arguments: Vec<String>,
    /// Variables beside those of this process.
    pub(super) environment: Vec<(&'static str, String)>,
}

impl Launch {
    /// Returns the command that runs `program` in `folder`.
    ///
    /// A shell moves to the folder and sends stdout to stderr, which is the log. The pipe that a
    /// guarded program has as its stdout is never read, so a full one would stop the peer. The
    /// shell and `env` leave the process to the program.
    pub(super) fn command(&self, program: &Path, folder: &Path) -> Vec<OsString> {
        let script = "cd \"$0\" && exec env \"$@\" >&2";
        let mut command: Vec<OsString> =
            vec!["sh".into(), "-c".into(), script.into(), folder.into()];
        let variables = self.environment.iter();
        command.extend(variables.map(|(name, value)| format!("{name}={value}").into()));
        command.push(program.into());
        command.extend(self.arguments.iter().map(Into::into));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_before_the_program_and_arguments_behind_it() {
        let launch = Launch {
            config: None,
            arguments: vec!["--port".to_owned(), "1".to_owned()],
            environment: vec![("LEVEL", "warn".to_owned())],
        };
        let command = launch.command(Path::new("/opt/peer"), Path::new("/tmp/x"));
        assert_eq!(command[3..], ["/tmp/x", "LEVEL=warn", "/opt/peer", "--port", "1"]);
    }
}
