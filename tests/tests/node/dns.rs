//! Errors in the config of a name server, and how they are reported.

use std::path::PathBuf;

use spillway_config::{Config, ConfigError};

use crate::certificates::Certificates;
use crate::config::{EVERYTHING, sole};

struct World {
    certificates: Certificates,
}

impl World {
    fn new() -> Self {
        let certificates = Certificates::for_name("localhost");
        std::fs::write(certificates.folder().join("t"), "").expect("a token file");
        Self { certificates }
    }

    fn path(&self) -> PathBuf {
        self.certificates.folder().join("file.toml")
    }

    /// Parses the config that has every key, with one text in place of another.
    fn with(&self, was: &str, is: &str) -> Result<Config, ConfigError> {
        assert!(EVERYTHING.contains(was), "{was}");
        Config::parse(&EVERYTHING.replacen(was, is, 1), &self.path(), []).map_err(sole)
    }
}

#[test]
fn faults_of_a_name_server_are_told_with_line_and_remedy() {
    let world = World::new();
    let region = "addresses = [\"203.0.113.1\"]\nlatitude = 48.9\nlongitude = 2.4\n";
    let another = format!(
        "{region}[[region]]\nname = \"eu-west-1\"\naddresses = [\"2001:db8::1\"]\n[[region]]\nname = \"r\"\n"
    );
    for (was, is, message, remedy) in [
        ("ttl_s = 1", "ttl_s = 31", "can't be 31", "from 1 to 30"),
        ("ttl_s = 1", "ttl_s = 0", "can't be 0", "from 1 to 30"),
        ("zone = \"infer.example.com\"", "zone = \"a..b\"", "no domain name", "labels"),
        ("names = [\"@\"]", "names = [\"a b\"]", "no domain name", "labels"),
        ("name_servers = [\"ns1.example.net\"]", "name_servers = []", "at least one", "parent"),
        (
            "name_servers = [\"ns1.example.net\"]",
            "name_servers = [\"ns1.infer.example.com\"]",
            "has no address",
            "hosts",
        ),
        ("\"0 issue ", "\"1 issue ", "flags of a CAA", "0 issue"),
        ("\"0 issue ", "\"0 permit ", "no such tag", "issuewild"),
        ("hosts = {}", "hosts = { \"a..b\" = [] }", "no domain name", "labels"),
        ("aliases = {}", "aliases = { \"@\" = \"a.example.net\" }", "can't be an alias", "remove"),
        ("longitude = 2.4\n", "", "belong together", "other one"),
        ("latitude = 48.9", "latitude = 91.0", "can't be 91", "from -90 to 90"),
        (
            "latitude = 48.9\nlongitude = 2.4\n",
            "",
            "this region has no location",
            "latitude and longitude",
        ),
        (
            "client_networks = [\"10.0.0.0/8\"]",
            "client_networks = [\"10/8\"]",
            "no address block",
            "10.1.0.0/16",
        ),
        (region, "", "no region has addresses", "addresses ="),
        (region, another.as_str(), "has no IPv4 address", "both families of one region"),
    ] {
        let error = world.with(was, is).expect_err(is);
        assert!(error.message.contains(message), "{is}: {error}");
        assert!(error.remedy.contains(remedy), "{is}: {error}");
        assert!(error.position().is_some(), "{is}: {error}");
    }
}

#[test]
fn a_region_that_is_called_like_one_of_a_cloud_needs_no_coordinates() {
    let world = World::new();
    let own = "name = \"elsewhere\"\nweight_percent = 100";
    let text = EVERYTHING.replacen(own, "name = \"eu-central-1\"\nweight_percent = 100", 1);
    let text = text.replacen("latitude = 48.9\nlongitude = 2.4\n", "", 1);
    let config = Config::parse(&text, &world.path(), []).expect("a config");
    let zone = config.dns.expect("a name server").zone;
    let [region] = zone.regions() else { panic!("one region") };
    assert!((region.coordinates.latitude - 50.1).abs() < 0.1, "Frankfurt");
}

#[test]
fn without_a_cluster_there_is_nothing_to_lead_to() {
    let text = "[[listener]]\naddress = \"127.0.0.1:0\"\nauth = \"none\"\n[dns]\nlisten = \"127.0.0.1:0\"\n\
        zone = \"infer.example.com\"\nname_servers = [\"ns1.example.net\"]\n";
    let error =
        Config::parse(text, "file.toml".as_ref(), []).map_err(sole).expect_err("no cluster");
    assert!(error.message.contains("without [cluster]"), "{error}");
    assert_eq!(error.position().map(|(line, _)| line), Some(6));
}
