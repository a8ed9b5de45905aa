//! A node with few file descriptors.

use std::net::TcpStream;
use std::time::Duration;

use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_testkit::eventually_blocking;

use super::alone::{Alone, free_port};
use crate::caller;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_clients_leave_descriptors_for_replicas() {
    let emulator = Emulator::start(EmulatorConfig::default()).await.unwrap();
    let (url, port) = (emulator.addresses()[0], free_port());
    let config = format!(
        "[node]\nworkers = 2\n[auth]\nmode = \"none\"\n[[listener]]\naddress = \"127.0.0.1:{port}\"\n\
         [[replica]]\nname = \"a\"\nurl = \"http://{url}\"\nmodels = [\"tiny\"]\nidle_ms = 1\n"
    );
    let mut node = Alone::start_with("ulimit -n 96", &config);
    assert!(node.serves(), "{}", node.log());
    assert!(node.log().contains("the limit of open files allows fewer client connections"));
    let address = ([127, 0, 0, 1], port).into();
    let mut kept = caller::Kept::connect(address).await;
    kept.chat().await.unwrap();
    let idle: Vec<_> = (0..200).map_while(|_| TcpStream::connect(address).ok()).collect();
    for _ in 0..5 {
        // wait: the connection to the replica has been idle for too long by then
        tokio::time::sleep(Duration::from_millis(20)).await;
        kept.chat().await.unwrap();
    }
    drop(idle);
    eventually_blocking("others are served again", || {
        tokio::task::block_in_place(|| {
            let asked = caller::chat(address, false, 1);
            tokio::runtime::Handle::current().block_on(asked).is_ok()
        })
    });
}
