//! All certificates of a cluster are replaced under load by the command, and finally its CA.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use spillway_emulator::{Emulator, EmulatorConfig};

use super::world::{World, done, eventually, names, refused};
use crate::caller::{call, chat, status};

const NODES: usize = 3;

/// Load: one request after the other at each node until it is stopped.
struct Load {
    stops: Arc<AtomicBool>,
    sent: [Arc<AtomicUsize>; NODES],
    threads: Vec<std::thread::JoinHandle<Vec<String>>>,
}

impl Load {
    fn start(to: [SocketAddr; NODES]) -> Self {
        let stops = Arc::<AtomicBool>::default();
        let sent = [(); NODES].map(|()| Arc::<AtomicUsize>::default());
        let threads = to.into_iter().zip(sent.clone()).map(|(to, sent)| {
            let stops = Arc::clone(&stops);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.unwrap().block_on(async move {
                    let mut failed = Vec::new();
                    while !stops.load(Ordering::Relaxed) {
                        let streams = sent.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
                        if let Err(why) = chat(to, streams, 4).await {
                            failed.push(format!("{to}: {why}"));
                        }
                        // wait: the pace of the load
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    failed
                })
            })
        });
        let threads = threads.collect();
        Self { stops, sent, threads }
    }

    /// Waits until each node has served some more requests.
    fn goes_on(&self) {
        let before = self.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed));
        eventually("requests go on", || {
            self.sent
                .iter()
                .zip(before)
                .all(|(sent, before)| sent.load(Ordering::Relaxed) > before + 5)
        });
    }

    fn end(self) -> (usize, Vec<String>) {
        self.stops.store(true, Ordering::Relaxed);
        let failed = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        (self.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum(), failed)
    }
}

/// Reads a path of a node's admin listener.
fn get(world: &World, node: usize, path: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let head = format!("GET {path}");
    runtime.block_on(call(world.admin_address(node), &head, "")).unwrap_or_default()
}

/// Returns the sum of a metric's lines that contain `line`.
fn metric(world: &World, node: usize, line: &str) -> f64 {
    let text = get(world, node, "/metrics");
    let lines = text.lines().filter(|it| it.starts_with(line));
    lines.filter_map(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Returns the certificates that a node reports.
fn used(world: &World, node: usize) -> Value {
    done(&["show", "--admin", &world.admin(node)])
}

fn of_kind<'a>(shown: &'a Value, kind: &str) -> Vec<&'a Value> {
    shown["certificates"].as_array().unwrap().iter().filter(|it| it["kind"] == kind).collect()
}

fn serial(world: &World, node: usize) -> String {
    of_kind(&used(world, node), "node")[0]["serial"].as_str().unwrap().to_owned()
}

fn takes_over(world: &World, node: usize, renewed: &Value) {
    assert_ne!(renewed["serial"], renewed["serial_before"]);
    eventually("the new certificate is in use", || renewed["serial"] == *serial(world, node));
}

/// Gives the CA's present file to all nodes, and waits until they trust `authorities` CAs.
fn hand_out(world: &World, authorities: usize) {
    for node in 0..NODES {
        world.hand_out(node);
    }
    for node in 0..NODES {
        eventually("all authorities are believed", || {
            of_kind(&used(world, node), "authority").len() == authorities
        });
    }
}

fn renew(world: &World, node: usize, more: &[&str]) -> Value {
    let (name, region, out) = names(node, world);
    let words = ["renew", "--dir", &world.at("ca"), "--region", &region, "--node", &name];
    done(&[&words[..], &["--out", &out], more].concat())
}

/// Renews a node's key and certificate by request, so that the key never leaves the node's folder.
fn renew_by_request(world: &World, node: usize) -> Value {
    let (name, region, out) = names(node, world);
    let next = format!("{out}/next");
    let who = ["--region", &region, "--node", &name];
    done(&[&["request", "--cluster", "test", "--out", &next], &who[..]].concat());
    let request = format!("{next}/{name}.{region}.csr");
    done(&["sign", &request, "--dir", &world.at("ca")]);
    done(&[&["renew", "--from", &next, "--out", &out], &who[..]].concat())
}

/// Waits until a node is connected to the regions of the others.
fn is_connected(world: &World, node: usize) {
    eventually("it is connected", || {
        let line = "spillway_link_connected{";
        metric(world, node, line) >= 2.0 * (NODES - 1) as f64
    });
}

fn lines(emulator: &Emulator) -> String {
    format!(
        "[[replica]]\nname = \"a\"\nurl = \"http://{}\"\nmodels = [\"tiny\"]\n[health]\nslow_start_ms = 0",
        emulator.addresses()[0]
    )
}

/// Starts three nodes, of which the first forwards all requests. Returns the ends of their configs.
fn start(runtime: &tokio::runtime::Runtime, emulators: &[Emulator; 2]) -> (World, [String; NODES]) {
    let mut world = World::new(NODES, 4);
    let lines = [String::new(), lines(&emulators[0]), lines(&emulators[1])];
    (0..NODES).for_each(|node| world.start(node, &lines[node]));
    for node in 0..NODES {
        eventually("it answers", || status(&get(&world, node, "/livez")) == 200);
        is_connected(&world, node);
    }
    for node in 0..NODES {
        let asked = || runtime.block_on(chat(world.data(node), false, 2)).is_ok();
        eventually("it serves", asked);
    }
    (world, lines)
}

/// Replaces the CA under load. Returns the last node's files of the old CA.
fn rotate(world: &World, load: &Load) -> Vec<(&'static str, Vec<u8>)> {
    let ca = world.at("ca");
    let phase = || done(&["show", "--dir", &ca])["rotation"]["phase"].clone();
    // 1: nodes trust both CAs, and the old one signs.
    done(&["rotate-ca", "begin", "--dir", &ca]);
    assert_eq!(phase(), "begun");
    hand_out(world, 2);
    // 2: one node after the other gets a certificate of the new CA.
    done(&["rotate-ca", "issue", "--dir", &ca]);
    assert_eq!(phase(), "issuing");
    takes_over(world, 0, &renew_by_request(world, 0));
    takes_over(world, 1, &renew(world, 1, &[]));
    // New connections show certificates of both CAs.
    let admin = world.admin(0);
    let ask = ["rotate-ca", "finish", "--dir", &ca, "--ask", "--admin", &admin];
    let early = refused(&ask);
    assert!(early.contains("n2 shows a certificate of another CA"), "{early}");
    assert!(!early.contains("n1 "), "{early}");
    let early = refused(&["rotate-ca", "finish", "--dir", &ca, &world.at("n2/n2.region-2.pem")]);
    assert!(early.contains("n2.region-2.pem"), "{early}");
    load.goes_on();
    let old = ["n2.region-2.pem", "n2.region-2-key.pem", "ca.pem"];
    let old = old.map(|file| (file, std::fs::read(world.path("n2").join(file)).unwrap()));
    takes_over(world, 2, &renew(world, 2, &["--keep-key"]));
    // 3: the old CA goes.
    let finished = done(&ask);
    let asked = finished["asked"].as_array().unwrap().iter();
    let asked: BTreeSet<_> = asked.map(|it| it.as_str().unwrap()).collect();
    assert_eq!(asked, BTreeSet::from(["n0", "n1", "n2"]));
    hand_out(world, 1);
    load.goes_on();
    old.into()
}

#[test]
fn all_certificates_and_the_authority_are_replaced_under_load_and_no_request_fails() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = || EmulatorConfig { replicas: 1, time_scale: 0.1, ..EmulatorConfig::default() };
    let emulators = [(); 2].map(|()| runtime.block_on(Emulator::start(config())).unwrap());
    let (mut world, lines) = start(&runtime, &emulators);
    let load = Load::start([0, 1, 2].map(|node| world.data(node)));
    load.goes_on();

    // New certificates of the same CA: with the key of before, with a new one, by request.
    takes_over(&world, 2, &renew(&world, 2, &["--keep-key"]));
    takes_over(&world, 1, &renew(&world, 1, &[]));
    takes_over(&world, 0, &renew_by_request(&world, 0));
    std::fs::remove_dir_all(world.path("n0").join("next")).unwrap();
    load.goes_on();
    let old = rotate(&world, &load);
    for node in 0..NODES {
        let refusals = metric(&world, node, "spillway_link_refusals_total");
        assert_eq!(refusals, 0.0, "nobody was ever refused:\n{}", world.log(node));
    }
    let (sent, failed) = load.end();
    println!("{sent} requests, {} failed", failed.len());
    assert!(sent > 100, "{sent} requests are no load");
    assert!(failed.is_empty(), "{} of {sent}: {:#?}", failed.len(), &failed[..failed.len().min(5)]);

    // A node with a certificate of the old CA is refused by all nodes.
    world.stop(2);
    for (file, text) in old {
        std::fs::write(world.path("n2").join(file), text).unwrap();
    }
    world.start(2, &lines[2]);
    for node in [0, 1] {
        eventually("it is refused", || {
            metric(&world, node, "spillway_link_refusals_total{reason=\"wrong_authority\"}") > 0.0
        });
    }
    // With the new ca.pem that node could not even start.
    world.stop(2);
    world.hand_out(2);
    world.start(2, &lines[2]);
    assert_ne!(world.ended(2), Some(0));
    assert!(world.log(2).contains("does not vouch for it"), "{}", world.log(2));
}

#[test]
fn links_made_between_old_and_new_certificates_stand() {
    let mut world = World::new(2, 1);
    world.start(0, "");
    world.start(1, "");
    let connected = |world: &World, node| metric(world, node, "spillway_link_connected{") >= 2.0;
    for node in [0, 1] {
        eventually("they are connected", || connected(&world, node));
    }
    let ca = world.at("ca");
    done(&["rotate-ca", "begin", "--dir", &ca]);
    (0..2).for_each(|node| world.hand_out(node));
    eventually("the other believes both", || of_kind(&used(&world, 0), "authority").len() == 2);
    done(&["rotate-ca", "issue", "--dir", &ca]);
    renew(&world, 1, &[]);
    // The node with the new CA's certificate connects to a node with one of the old CA.
    world.stop(1);
    world.start(1, "");
    for node in [0, 1] {
        eventually("they are connected again", || connected(&world, node));
    }
    let nodes = get(&world, 0, "/certificates/nodes");
    let body = nodes.split_once("\r\n\r\n").unwrap().1;
    let nodes: Value = serde_json::from_str(body).unwrap();
    let authority = |at: usize| nodes["nodes"][at]["authority"].as_str().unwrap().to_owned();
    assert_ne!(authority(0), authority(1), "{nodes}");
    assert_eq!(metric(&world, 0, "spillway_link_refusals_total"), 0.0);
}
