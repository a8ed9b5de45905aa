//! Completions of names, in the shells that this machine has.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::machines::spillway;

/// Begun commands, and the kind of the names that complete them.
const BEGUN: [(&str, &str); 9] = [
    ("drain", "targets"),
    ("weight", "targets"),
    ("get region", "region"),
    ("apply tenants", "tenants"),
    ("edit limits", "limits"),
    ("remove model", "model"),
    ("replicas drain", "own-replicas"),
    ("limits set", "limits"),
    ("keys revoke", "keys"),
];

/// A folder with the script for a shell, and a `spillway` that knows one name of each kind and writes any
/// other command that it is run with to the file `run`.
fn folder(shell: &str, script: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = spillway(&["completions", shell]);
    assert!(made.status.success(), "{made:?}");
    fs::write(folder.path().join(script), made.stdout).unwrap();
    let program = folder.path().join("spillway");
    let text = "#!/bin/sh\n\
        if [ \"$1\" = names ]; then echo \"one-of-$2\"; else echo \"$*\" >> \"${0%/*}/run\"; fi\n";
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Runs a script in a shell that finds the folder's `spillway`; `None` if the machine has no such shell.
fn run(folder: &Path, shell: &[&str], script: &str, words: &[String]) -> Option<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]).arg("-c").arg(script).args(words);
    command.env("PATH", format!("{}:{path}", folder.display())).env("HOME", folder);
    match command.current_dir(folder).output() {
        Ok(output) => Some(output),
        #[expect(clippy::print_stderr, reason = "a test that is left out says so")]
        Err(_) => {
            eprintln!("left out: this machine has no {}", shell[0]);
            None
        }
    }
}

#[test]
fn bash_completes_names() {
    let folder = folder("bash", "spillway.bash");
    for (begun, kind) in BEGUN {
        let script = "source ./spillway.bash; COMP_WORDS=(spillway \"$@\" one); \
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
            _spillway_named spillway one \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[@]}\"";
        let words = std::iter::once("bash").chain(begun.split(' '));
        let words: Vec<String> = words.map(str::to_owned).collect();
        let shell = ["bash", "--norc", "--noprofile"];
        let Some(output) = run(folder.path(), &shell, script, &words) else { return };
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(names.trim(), format!("one-of-{kind}"), "{begun}: {output:?}");
    }
}

#[test]
fn fish_completes_names() {
    let folder = folder("fish", "spillway.fish");
    for (begun, kind) in BEGUN {
        let script = format!("source ./spillway.fish; complete -C 'spillway {begun} '");
        let shell = ["fish", "--no-config"];
        let Some(output) = run(folder.path(), &shell, &script, &[]) else { return };
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(names.trim(), format!("one-of-{kind}"), "{begun}: {output:?}");
    }
}

#[test]
fn zsh_completes_names() {
    let folder = folder("zsh", "_spillway");
    // A shell in a terminal is sent each line with a tab at its end; the program prints its
    // arguments.
    let script = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D'
        for begun in "$@"; do zpty -n -w shell "spillway $begun "$'\t\n'; done
        zpty -w shell exit
        while zpty -r shell line; do :; done
    "#;
    let words = BEGUN.map(|(begun, _)| begun.to_owned());
    let words: Vec<String> = std::iter::once("zsh".to_owned()).chain(words).collect();
    let Some(output) = run(folder.path(), &["zsh", "-f"], script, &words) else { return };
    let run = fs::read_to_string(folder.path().join("run")).unwrap_or_default();
    let expected = BEGUN.map(|(begun, kind)| format!("{begun} one-of-{kind}"));
    assert_eq!(run.lines().collect::<Vec<_>>(), expected, "{output:?}");
}
