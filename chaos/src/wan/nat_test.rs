use super::super::packet::testing::{echo, is_sound, tcp, udp};
use super::*;

const PUBLIC: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 1);
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
const IDLE_NS: u64 = 120;

fn nat() -> Nat {
    let forward = |protocol, port, to_port| Forward { protocol, port, to: INSIDE, to_port };
    Nat::new(NatPlan {
        public: PUBLIC,
        idle_ns: IDLE_NS,
        forwards: vec![
            forward(PacketProtocol::Udp, 7400, None),
            forward(PacketProtocol::Tcp, 80, Some(8080)),
        ],
    })
}

/// Returns the public source and the peer of a packet from `inside` to `peer`.
fn leave(nat: &mut Nat, now_ns: u64, inside: PacketAddress, peer: PacketAddress) -> PacketAddress {
    let mut bytes = udp(inside, peer, b"hello");
    let mut packet = Packet::parse(&mut bytes).unwrap();
    nat.leave(now_ns, &mut packet).unwrap();
    let (_, source, destination) = packet.flow().unwrap();
    assert_eq!(destination, peer);
    assert!(is_sound(&bytes));
    source
}

/// Returns the inside destination of a packet from `peer` to the public `port`.
fn arrive(nat: &mut Nat, now_ns: u64, peer: PacketAddress, port: u16) -> Option<PacketAddress> {
    let mut bytes = udp(peer, (PUBLIC, port), b"hello");
    let mut packet = Packet::parse(&mut bytes).unwrap();
    nat.arrive(now_ns, &mut packet)?;
    let (_, source, destination) = packet.flow().unwrap();
    assert_eq!(source, peer);
    assert!(is_sound(&bytes));
    Some(destination)
}

#[test]
fn the_answer_of_whoever_was_asked_comes_back_and_no_other() {
    let mut nat = nat();
    assert_eq!(leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9)), (PUBLIC, 5000));
    assert_eq!(arrive(&mut nat, 1, (FAR, 9), 5000), Some((INSIDE, 5000)));
    assert_eq!(arrive(&mut nat, 1, (FAR, 10), 5000), None);
    assert_eq!(arrive(&mut nat, 1, (NEIGHBOUR, 9), 5000), None);
    assert_eq!(arrive(&mut nat, 1, (FAR, 9), 5001), None);
}

#[test]
fn a_forwarded_port_leads_inside_uninvited_and_names_itself_on_the_way_out() {
    let mut nat = nat();
    assert_eq!(arrive(&mut nat, 0, (FAR, 9), 7400), Some((INSIDE, 7400)));
    assert_eq!(leave(&mut nat, 0, (INSIDE, 7400), (FAR, 9)), (PUBLIC, 7400));
    let mut bytes = tcp((FAR, 9), (PUBLIC, 80));
    let mut packet = Packet::parse(&mut bytes).unwrap();
    assert_eq!(nat.arrive(0, &mut packet), Some(INSIDE));
    assert_eq!(packet.flow().unwrap().2, (INSIDE, 8080));
    let mut answer = tcp((INSIDE, 8080), (FAR, 9));
    let mut packet = Packet::parse(&mut answer).unwrap();
    nat.leave(0, &mut packet).unwrap();
    assert_eq!(packet.flow().unwrap().1, (PUBLIC, 80));
}

#[test]
fn two_of_the_same_port_get_different_ones_outside() {
    let mut nat = nat();
    let first = leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9));
    let second = leave(&mut nat, 0, (NEIGHBOUR, 5000), (FAR, 9));
    assert_ne!(first, second);
    assert_eq!(leave(&mut nat, 0, (NEIGHBOUR, 5000), (FAR, 9)), second);
    assert_eq!(arrive(&mut nat, 0, (FAR, 9), second.1), Some((NEIGHBOUR, 5000)));
    // A forwarded port belongs to its owner, even while unused.
    assert_ne!(leave(&mut nat, 0, (NEIGHBOUR, 7400), (FAR, 9)), (PUBLIC, 7400));
}

#[test]
fn an_idle_flow_is_forgotten_and_a_used_one_is_not() {
    let mut nat = nat();
    leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9));
    assert!(arrive(&mut nat, IDLE_NS, (FAR, 9), 5000).is_some());
    assert!(arrive(&mut nat, 2 * IDLE_NS, (FAR, 9), 5000).is_some());
    assert!(arrive(&mut nat, 3 * IDLE_NS + 1, (FAR, 9), 5000).is_none());
    // Peers of the forgotten flow are forgotten, too.
    leave(&mut nat, 4 * IDLE_NS, (INSIDE, 5000), (FAR, 10));
    assert!(arrive(&mut nat, 4 * IDLE_NS, (FAR, 9), 5000).is_none());
}

#[test]
fn after_a_rebind_old_ports_are_closed_and_new_flows_have_others() {
    let mut nat = nat();
    let before = leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9));
    nat.rebind();
    assert_eq!(arrive(&mut nat, 0, (FAR, 9), before.1), None);
    let after = leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9));
    assert_ne!(before, after);
    nat.rebind();
    assert_ne!(leave(&mut nat, 0, (INSIDE, 5000), (FAR, 9)), after);
    assert_eq!(leave(&mut nat, 0, (INSIDE, 7400), (FAR, 9)), (PUBLIC, 7400));
}

#[test]
fn the_flow_idle_for_longest_makes_room() {
    let mut nat = nat();
    for n in 0..MAPPINGS_MAX {
        leave(&mut nat, n as u64, (INSIDE, 10_000 + n as u16), (FAR, 9));
    }
    nat.plan.idle_ns = u64::MAX;
    leave(&mut nat, 5_000, (INSIDE, 10_000), (FAR, 9));
    leave(&mut nat, 5_001, (NEIGHBOUR, 9_999), (FAR, 9));
    assert_eq!(nat.mappings.len(), MAPPINGS_MAX);
    assert_eq!(nat.owners.len(), MAPPINGS_MAX);
    assert!(arrive(&mut nat, 5_002, (FAR, 9), 10_000).is_some());
    assert!(arrive(&mut nat, 5_002, (FAR, 9), 10_001).is_none());
}

#[test]
fn a_ping_goes_out_and_its_reply_comes_back() {
    let mut nat = nat();
    let mut request = echo(8, 77, INSIDE, FAR);
    nat.leave(0, &mut Packet::parse(&mut request).unwrap()).unwrap();
    let mut second = echo(8, 77, NEIGHBOUR, FAR);
    let mut packet = Packet::parse(&mut second).unwrap();
    nat.leave(0, &mut packet).unwrap();
    let (_, (_, identifier), _) = packet.flow().unwrap();
    assert_ne!(identifier, 77);
    for (identifier, inside) in [(77, INSIDE), (identifier, NEIGHBOUR)] {
        let mut reply = echo(0, identifier, FAR, PUBLIC);
        let mut packet = Packet::parse(&mut reply).unwrap();
        assert_eq!(nat.arrive(0, &mut packet), Some(inside));
        assert_eq!(packet.flow().unwrap().2, (inside, 77));
        assert!(is_sound(&reply));
    }
}

#[test]
fn what_has_no_ports_is_refused() {
    let mut unreachable = echo(3, 0, FAR, PUBLIC);
    assert_eq!(nat().arrive(0, &mut Packet::parse(&mut unreachable).unwrap()), None);
}
