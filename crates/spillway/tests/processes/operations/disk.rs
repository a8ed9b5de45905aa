//! Node with a full disk.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use super::world::{NODES, World};

/// Bytes of each record's title: the longest that is allowed.
const TITLE_BYTES: usize = 128;

/// Starts a node whose files can't grow beyond `bytes`, which acts like a full disk. A write that
/// does not fit gets an error instead of a signal.
fn start_with_room(world: &World, node: usize, bytes: u64) -> Child {
    let log = fs::File::options().append(true).open(world.file(&format!("n{node}.log"))).unwrap();
    // Dash and POSIX count 512 bytes, bash 1,024: either is a limit.
    let order = format!(
        "trap '' XFSZ; ulimit -f {}; exec {} run --config {}",
        bytes / 512,
        env!("CARGO_BIN_EXE_spillway"),
        world.file(&format!("n{node}.toml")).display(),
    );
    let mut command = Command::new("sh");
    command.args(["-c", &order]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}

fn bytes_of(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_full_disk_serves_and_follows_again_when_there_is_room() {
    let mut world = World::started().await;
    World::text(0, &["tenants", "put", "before", "{}"]);
    world.has_tenant(2, "before");
    world.machines.stop(2);
    let room = bytes_of(&world.folder(2).join("log.redb"));
    let child = start_with_room(&world, 2, room);
    world.machines.nodes[2] = Some(child);
    world.has_members(2, NODES);
    let title = "x".repeat(TITLE_BYTES);
    let mut written = 0;
    while !status(&World::order(2, &["status"])).starts_with("LOG STOPPED: ") {
        assert!(written < 500, "its disk is never full:\n{}", world.machines.log(2));
        let record = format!("{{\"title\": \"{title}\"}}");
        World::text(0, &["tenants", "put", &format!("t{written}"), &record]);
        written += 1;
    }
    let log = world.machines.log(2);
    println!("full after {written} writes: {}", status(&World::order(2, &["status"])));
    assert!(log.contains("File too large"), "its log says why:\n{log}");
    // Requests don't need the disk, and the other nodes have a majority without this one.
    world.serves(2).await;
    World::text(0, &["tenants", "put", "after", "{}"]);

    world.machines.terminate(2);
    world.machines.ended(2);
    world.machines.start(2);
    world.has_tenant(2, "after");
    world.serves(2).await;
}

/// Returns the first line of what `spillway status` prints.
fn status(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
