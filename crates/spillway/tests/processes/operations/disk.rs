//! Nodes whose disks are full, hang, or are from the past.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Instant, SystemTime};

use spillway_testkit::PATIENCE;

use super::world::{NODES, World, said};
use crate::caller::{call, status as status_of};
use crate::machines::admin;

/// Regions of each record that fills a disk: as many as a tenant may name.
const TENANT_REGIONS: usize = 64;
/// Bytes of a region's name.
const NAME_BYTES: usize = 60;
/// Such records of 4 KB that are more than the free pages of a log that has just begun.
const RECORDS_MAX: usize = 400;

/// Starts a node whose files can't grow beyond `bytes`, which acts like a full disk until
/// [`make_room`]. A write that does not fit gets an error instead of a signal.
fn start_with_room(world: &World, node: usize, bytes: u64) -> Child {
    let log = fs::File::options().append(true).open(world.file(&format!("n{node}.log"))).unwrap();
    // Dash and POSIX count 512 bytes, bash 1,024: either is a limit.
    let order = format!(
        "trap '' XFSZ; ulimit -S -f {}; exec {} run --config {}",
        bytes / 512,
        env!("CARGO_BIN_EXE_spillway"),
        world.file(&format!("n{node}.toml")).display(),
    );
    let mut command = Command::new("sh");
    command.args(["-c", &order]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().unwrap()
}

/// Lets the files of a running node grow again.
fn make_room(node: &Child) {
    let id = node.id().to_string();
    let done = Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status().unwrap();
    assert!(done.success(), "{done}");
}

/// Returns a tenant whose record takes 4 KB.
fn large_tenant() -> String {
    let regions = (0..TENANT_REGIONS).map(|number| format!("\"r{number:0NAME_BYTES$}\""));
    format!("{{\"regions\": [{}]}}", regions.collect::<Vec<_>>().join(", "))
}

fn bytes_of(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_a_full_disk_serves_and_follows_again_by_itself_when_there_is_room() {
    let mut world = World::started().await;
    World::text(0, &["apply", "tenant", "before", "{}"]);
    world.has_tenant(2, "before");
    world.machines.stop(2);
    let room = bytes_of(&world.folder(2).join("log.redb"));
    let child = start_with_room(&world, 2, room);
    world.machines.nodes[2] = Some(child);
    world.has_members(2, NODES);
    let record = large_tenant();
    let mut written = 0;
    while !status(&World::order(2, &["status"])).starts_with("LOG STOPPED: ") {
        assert!(written < RECORDS_MAX, "its disk is never full:\n{}", world.machines.log(2));
        World::text(0, &["apply", "tenant", &format!("t{written}"), &record]);
        written += 1;
    }
    let log = world.machines.log(2);
    println!("full after {written} writes: {}", status(&World::order(2, &["status"])));
    assert!(log.contains("File too large"), "its log says why:\n{log}");
    assert!(log.contains("Make room"), "and what helps:\n{log}");
    // Requests don't need the disk, and the other nodes have a majority without this one.
    world.serves(2).await;
    World::text(0, &["apply", "tenant", "after", "{}"]);

    // Each time that it stops, its log says so once, and not for each message of the others.
    let log = world.machines.log(2);
    let stops = log.matches("the replicated log has stopped").count();
    assert!(log.matches(" ERROR ").count() < 12 * stops, "{log}");

    make_room(world.machines.nodes[2].as_ref().unwrap());
    world.has_tenant(2, "after");
    world.until("its health", 2, || status(&World::order(2, &["status"])).starts_with("healthy: "));
    let log = world.machines.log(2);
    assert!(log.contains("its disk works again"), "{log}");
    assert!(world.machines.nodes[2].as_mut().unwrap().try_wait().unwrap().is_none());
    world.serves(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_nodes_with_full_disks_both_follow_again_by_themselves_when_there_is_room() {
    let mut world = World::started().await;
    for node in [1, 2] {
        world.machines.stop(node);
        let room = bytes_of(&world.folder(node).join("log.redb"));
        let child = start_with_room(&world, node, room);
        world.machines.nodes[node] = Some(child);
        world.has_members(node, NODES);
    }
    let record = large_tenant();
    let has_stopped = |node| world.machines.log(node).contains("the replicated log has stopped");
    let mut written = Vec::new();
    while !has_stopped(1) || !has_stopped(2) {
        assert!(
            written.len() < RECORDS_MAX,
            "the disks are never full:\n{}",
            world.machines.log(2)
        );
        let name = format!("t{}", written.len());
        // Fails while neither of the two follows.
        if World::order(0, &["apply", "tenant", &name, &record]).status.success() {
            written.push(name);
        }
    }
    // A log that is opened again may find room for an order or two. Clients are served all along.
    for node in 0..NODES {
        world.serves(node).await;
    }

    for node in [1, 2] {
        make_room(world.machines.nodes[node].as_ref().unwrap());
    }
    World::text(0, &["apply", "tenant", "after", "{}"]);
    for node in 0..NODES {
        world.has_tenant(node, "after");
        for name in &written {
            world.has_tenant(node, name);
        }
        let is_well = || status(&World::order(node, &["status"])).starts_with("healthy: ");
        world.until("its health", node, is_well);
    }
}

/// Delay of each force of a node's disk, set while the node runs.
struct SlowDisk {
    library: PathBuf,
    delay: PathBuf,
    log: PathBuf,
}

impl SlowDisk {
    fn new(world: &World) -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../chaos/slow/force.c");
        let library = world.file("force.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(compiler.status().unwrap().success());
        let disk = Self { library, delay: world.file("force_ms"), log: world.file("forces") };
        disk.answers();
        disk
    }

    fn hangs(&self) {
        self.set("1000000000");
    }

    fn answers(&self) {
        self.set("0");
    }

    fn set(&self, ms: &str) {
        // A rename replaces the file in one step: the library reads it at any moment.
        let new = self.delay.with_extension("new");
        fs::write(&new, ms).unwrap();
        fs::rename(&new, &self.delay).unwrap();
    }

    fn environment(&self) -> [(&str, &Path); 3] {
        [
            ("LD_PRELOAD", &self.library),
            ("CHAOS_FORCE_MS", &self.delay),
            ("CHAOS_FORCE_LOG", &self.log),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_disk_hangs_at_its_start_serves_and_follows_by_itself_once_it_answers() {
    let mut world = World::started().await;
    world.machines.stop(2);
    let disk = SlowDisk::new(&world);
    disk.hangs();
    world.machines.start_with(2, &disk.environment());
    world.serves(2).await;
    let told = status(&World::order(2, &["status"]));
    assert!(told.starts_with("LOG STOPPED: opening the log: the disk has not answered"), "{told}");
    let metrics = call(admin(2), "GET /metrics", "").await.unwrap();
    let waiting =
        metrics.lines().find(|it| it.starts_with("spillway_control_disk_waiting_seconds"));
    let waiting: f64 = waiting.unwrap().split(' ').next_back().unwrap().parse().unwrap();
    assert!(waiting > 1.0, "{waiting}");
    assert_eq!(status_of(&call(admin(2), "GET /readyz", "").await.unwrap()), 200);
    World::text(0, &["apply", "tenant", "meanwhile", "{}"]);

    disk.answers();
    world.has_tenant(2, "meanwhile");
    world.until("its health", 2, || status(&World::order(2, &["status"])).starts_with("healthy: "));
    let log = world.machines.log(2);
    assert!(log.contains("its disk works again"), "{log}");
    world.machines.stop(2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_log_is_stopped_waits_for_no_shares_of_limits() {
    let mut world = World::started().await;
    world.machines.stop(2);
    let log = world.folder(2).join("log.redb");
    let aside = world.file("aside");
    fs::rename(&log, &aside).unwrap();
    fs::create_dir(&log).unwrap();
    world.machines.start(2);
    let by = Instant::now() + PATIENCE;
    loop {
        let told = status(&World::order(2, &["status"]));
        assert!(!told.contains("NOT READY"), "{told}");
        // Its replica has answered by then.
        if told.starts_with("LOG STOPPED: ") {
            break;
        }
        assert!(Instant::now() < by, "{told}: {}", world.machines.log(2));
    }
    assert_eq!(status_of(&call(admin(2), "GET /readyz", "").await.unwrap()), 200);
    fs::remove_dir(&log).unwrap();
    fs::rename(&aside, &log).unwrap();
    world.until("its health", 2, || status(&World::order(2, &["status"])).starts_with("healthy: "));
}

/// Copies a folder with all that is in it.
fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_has_a_node_vote_with_a_disk_from_the_past() {
    let mut world = World::started().await;
    world.machines.stop(2);
    let image = world.file("image");
    copy(&world.folder(2), &image);
    world.machines.start(2);
    World::text(0, &["apply", "tenant", "lost", "{}"]);
    world.has_tenant(2, "lost");
    // n1 compares itself with n2 each second, and saves the result at least every five seconds.
    let disks = world.folder(1).join("disks");
    let kept =
        || fs::metadata(&disks).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    for _ in 0..2 {
        let before = kept();
        world.until("it is kept", 1, || kept() > before);
    }
    world.machines.stop(2);
    fs::remove_dir_all(world.folder(2)).unwrap();
    copy(&image, &world.folder(2));
    world.machines.kill(0);
    world.machines.start(2);
    let first = |node| status(&World::order(node, &["status"]));
    world.until("it is told", 2, || first(2).contains("the disk of n2 is from the past"));
    let trust =
        |node, yes: &[&str]| World::order(node, &[&["nodes", "trust-disk", "n2"], yes].concat());
    assert!(said(&trust(2, &[])).contains("say --yes"), "{}", said(&trust(2, &[])));
    assert!(
        said(&trust(1, &["--yes"])).contains("this is node n1"),
        "{}",
        said(&trust(1, &["--yes"]))
    );
    let done = trust(2, &["--yes", "--json"]);
    assert!(done.status.success(), "{}", said(&done));
    World::text(1, &["apply", "tenant", "after", "{}"]);
    world.has_tenant(2, "after");
    world.until("nothing is told", 2, || !first(2).contains("from the past"));
    world.until("the audit trail", 1, || {
        let trail = World::order(1, &["audit", "--last", "100"]);
        String::from_utf8_lossy(&trail.stdout).contains("trust the disk")
    });
}

/// Returns the first line of what `spillway status` prints.
fn status(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned()
}
