//! Nodes whose certificate is not valid by their clock.

use std::time::{Duration, SystemTime};

use spillway_link::certs::{Authority, AuthorityFiles, IfExists, NodeFiles, Validity};

use super::world::{World, eventually, names};
use crate::caller::chat;
use crate::machines::spillway;

/// Gives the first node a certificate that is valid for so many days from a time on.
fn issue(world: &World, authority: &Authority, from: SystemTime, days: u32) {
    let (name, region, out) = names(0, world);
    let validity = Validity::days(from, days).unwrap();
    let files = NodeFiles::in_folder(out.as_ref(), &region, &name);
    files.write(authority.issue(&region, &name, validity).unwrap(), IfExists::Replace).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_serves_without_its_cluster_until_its_certificate_is_valid() {
    let config = spillway_emulator::EmulatorConfig { time_scale: 0.1, ..Default::default() };
    let emulator = spillway_emulator::Emulator::start(config).await.unwrap();
    let address = emulator.addresses()[0];
    let replica =
        format!("[[replica]]\nname = \"a\"\nurl = \"http://{address}\"\nmodels = [\"tiny\"]\n");
    let mut world = World::new(2, 5);
    let authority = AuthorityFiles::in_folder(&world.path("ca")).open().unwrap();
    world.start(1, "");
    let (now, ten_days) = (SystemTime::now(), Duration::from_secs(10 * 86_400));
    let admin = world.admin(0);
    let status = || {
        let shown = spillway(&["status", "--admin", &admin]);
        String::from_utf8(shown.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    for (from, said) in [(now + ten_days, "IS NOT VALID YET"), (now - ten_days, "HAS ENDED")] {
        issue(&world, &authority, from, 1);
        world.start(0, &replica);
        eventually("the certificate is named", || status().contains(said));
        assert!(status().contains("this machine's clock"), "{}", status());
        chat(world.data(0), true, 5).await.unwrap();
        assert!(world.log(0).contains("the clock of this machine shows"), "{}", world.log(0));
        if said == "IS NOT VALID YET" {
            world.stop(0);
        }
    }
    issue(&world, &authority, now, 30);
    // Without a restart.
    eventually("it is in its cluster", || status().starts_with("healthy: "));
}
