use super::*;

const THREE: &str = include_str!("../../wans/three.toml");

/// Returns a config of three regions with the second one's entry replaced by `second`, and `rest`
/// at the end.
fn with(second: &str, rest: &str) -> Result<Topology, WanConfigError> {
    let text = format!(
        r#"
        every_link = {{ rtt_ms = 10 }}
        [[region]]
        name = "a"
        subnet = "10.77.1.0/24"
        [[region]]
        {second}
        [[region]]
        name = "c"
        subnet = "10.77.3.0/24"
        {rest}
        "#
    );
    parse(&text, Path::new("."))
}

fn refusal(second: &str, rest: &str) -> String {
    with(second, rest).unwrap_err().to_string()
}

const SECOND: &str = "name = \"b\"\nsubnet = \"10.77.2.0/24\"";

#[test]
fn the_shipped_three_regions_are_80_220_and_170_ms_apart() {
    let topology = parse(THREE, Path::new(".")).unwrap();
    let names: Vec<&str> = topology.regions.iter().map(|region| region.name.as_str()).collect();
    assert_eq!(names, ["us-east-1", "eu-west-1", "ap-northeast-1"]);
    for (one, other, rtt_ms) in [(0, 1, 80), (0, 2, 220), (1, 2, 170)] {
        for (from, to) in [(one, other), (other, one)] {
            assert_eq!(topology.shape(from, to).delay_ns * 2, rtt_ms * 1_000_000);
        }
    }
    assert_eq!(topology.shape(1, 1).delay_ns, 0);
}

#[test]
fn every_shipped_file_is_a_network() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("wans");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        count += 1;
    }
    assert!(count >= 3, "{count}");
}

#[test]
fn a_link_overrides_every_link_in_the_directions_it_names() {
    let rest = r#"
        [[link]]
        between = ["a", "b"]
        shape = { rtt_ms = 30 }
        [[link]]
        from = "b"
        to = "a"
        shape = { loss_percent = 50 }
    "#;
    let topology = with(SECOND, rest).unwrap();
    let ms = |from, to| topology.shape(from, to).delay_ns / 1_000_000;
    assert_eq!([ms(0, 1), ms(1, 0), ms(0, 2), ms(2, 1)], [15, 15, 5, 5]);
    assert_eq!((topology.shape(0, 1).loss, topology.shape(1, 0).loss), (0.0, 0.5));
}

#[test]
fn nodes_share_a_place_or_have_one_each() {
    let second = "name = \"b\"\nsubnet = \"10.77.2.0/24\"\nnodes = 3";
    let shared = with(second, "").unwrap();
    assert_eq!(shared.namespaces.len(), 3);
    assert_eq!(shared.namespaces[1].nodes.len(), 3);
    assert_eq!(shared.namespace(1, 3), Some(1));
    let apart = with(&format!("{second}\nisolate = \"node\""), "").unwrap();
    assert_eq!(apart.namespaces.len(), 5);
    assert_eq!(apart.namespaces[3].nodes, [(3, Ipv4Addr::new(10, 77, 2, 3))]);
    assert_eq!(apart.namespace(1, 3), Some(3));
    assert_eq!(apart.namespace(1, 4), None);
}

#[test]
fn what_describes_no_network_is_refused_with_its_place() {
    let refused = [
        ("name = \"a\"\nsubnet = \"10.77.2.0/24\"", "", "two regions are called a"),
        ("name = \"b\"\nsubnet = \"10.77.1.128/25\"", "", "regions a and b share addresses"),
        ("name = \"b\"\nsubnet = \"10.77.2\"", "", "must look like"),
        ("name = \"b b\"\nsubnet = \"10.77.2.0/24\"", "", "a name has"),
        ("name = \"b\"\nsubnet = \"10.77.2.0/30\"\nnodes = 3", "", "3 nodes, but"),
        ("name = \"b\"\nsubnet = \"10.77.2.0/24\"\nnodes = 0", "", "0 nodes, but"),
        ("name = \"b\"\nsubnet = \"10.77.2.0/24\"\nnodes = 900", "", "at most 512"),
        ("name = \"b\"\nsubnet = \"10.77.2.0/24\"\ncolour = 1", "", "unknown field"),
        (
            "name = \"b\"\nsubnet = \"10.77.1.0/24\"\nnat = { public = \"203.0.113.1\" }",
            "",
            "hides addresses of a",
        ),
        (
            "name = \"b\"\nsubnet = \"192.168.0.0/24\"\nnat = { public = \"10.77.1.9\" }",
            "",
            "share addresses",
        ),
        (
            "name = \"b\"\nsubnet = \"192.168.0.0/24\"\n[region.nat]\npublic = \"203.0.113.1\"\n\
             forward = [{ protocol = \"udp\", port = 1, to = \"192.168.1.1\" }]",
            "",
            "is not in 192.168.0.0/24",
        ),
        (SECOND, "[[link]]\nbetween = [\"a\", \"z\"]\nshape = { rtt_ms = 1 }", "names z"),
        (SECOND, "[[link]]\nfrom = \"a\"\nshape = { rtt_ms = 1 }", "either `between` or"),
        (
            SECOND,
            "[[link]]\nbetween = [\"a\", \"c\"]\nshape = { loss_percent = 200 }",
            "link a to c: loss_percent is 200",
        ),
    ];
    for (second, rest, reason) in refused {
        let text = refusal(second, rest);
        assert!(text.contains(reason), "{second} {rest}: {text}");
    }
}

#[test]
fn regions_behind_translation_may_have_the_same_addresses() {
    let text = |last| {
        format!(
            "every_link = {{ rtt_ms = 10 }}\n\
             [[region]]\nname = \"a\"\nsubnet = \"192.168.0.0/24\"\nnat.public = \"203.0.113.1\"\n\
             [[region]]\nname = \"b\"\nsubnet = \"192.168.0.0/24\"\nnat.public = \"203.0.113.{last}\""
        )
    };
    assert!(parse(&text(2), Path::new(".")).is_ok());
    assert!(parse(&text(1), Path::new(".")).is_err());
}

#[test]
fn round_trips_come_from_a_file_and_a_missing_one_is_found() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("rtt.json"),
        r#"{"data": {"a": {"b": 20.0, "c": 40.0}, "b": {"a": 22.0, "a2": 1.0}}}"#,
    )
    .unwrap();
    let regions = "[[region]]\nname = \"a\"\nsubnet = \"10.77.1.0/24\"\n\
                   [[region]]\nname = \"b\"\nsubnet = \"10.77.2.0/24\"\n";
    let file = "rtt_file = \"rtt.json\"\n";
    let topology = parse(&format!("{file}{regions}"), folder.path()).unwrap();
    assert_eq!(topology.shape(0, 1).delay_ns, 10_500_000);
    assert_eq!(topology.shape(1, 0).delay_ns, 10_500_000);
    let third = "[[region]]\nname = \"c\"\nsubnet = \"10.77.3.0/24\"\n";
    let refused = parse(&format!("{file}{regions}{third}"), folder.path()).unwrap_err();
    assert_eq!(refused.to_string(), "nothing says how far c is from b");
    let refused = parse(&format!("rtt_file = \"none.json\"\n{regions}"), folder.path());
    assert!(refused.unwrap_err().to_string().contains("none.json"));
}
