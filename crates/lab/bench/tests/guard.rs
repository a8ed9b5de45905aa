//! Guard with the real binary: no process that it runs outlives the pipe.

use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

#[test]
fn closing_the_pipe_ends_the_child_and_its_children() {
    // The shell ignores SIGTERM, so the guard must use SIGKILL; its own child, which inherits that,
    // is in the same group.
    let script = "trap '' TERM; sleep 600 & echo $!; wait";
    let mut guard = Command::new(env!("CARGO_BIN_EXE_spillway-bench"))
        .args(["guard", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(guard.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let process = Path::new("/proc").join(line.trim());
    assert!(process.join("stat").exists(), "{line}");
    assert!(guard.try_wait().unwrap().is_none());

    drop(guard.stdin.take());
    assert!(!guard.wait().unwrap().success());
    let deadline = Instant::now() + Duration::from_secs(10);
    // A killed orphan is gone once init has reaped it; a zombie has no command line any more.
    while std::fs::read(process.join("cmdline")).is_ok_and(|command| !command.is_empty()) {
        assert!(Instant::now() < deadline, "the grandchild is still alive");
        // wait: the pause between two looks at the condition.
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_guard_ends_with_its_child() {
    let guard = |program: &str| {
        let mut guard = Command::new(env!("CARGO_BIN_EXE_spillway-bench"))
            .args(["guard", "--", program])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // Kept beyond the wait, which would close it: the guard must not end its child now.
        let pipe = guard.stdin.take();
        let status = guard.wait().unwrap();
        drop(pipe);
        status
    };
    assert!(guard("true").success());
    assert!(!guard("false").success());
}
