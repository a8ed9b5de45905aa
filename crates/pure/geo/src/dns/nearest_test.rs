use std::collections::BTreeMap;
use std::net::IpAddr;

use proptest::prelude::*;

use crate::Coordinates;
use crate::dns::client::ClientNetwork;
use crate::dns::nearest::{Asking, addresses, choose, rtt_by_distance_ms};
use crate::dns::test_zone::{AP, EU, US, spec, view, zone};
use crate::dns::{DnsView, RegionState, Zone};

const PARIS: (f64, f64) = (48.9, 2.4);
const NEW_YORK: (f64, f64) = (40.7, -74.0);
const TOKYO: (f64, f64) = (35.7, 139.7);
/// Middle of the Atlantic, a little nearer to Frankfurt.
const AZORES: (f64, f64) = (38.7, -27.2);

fn asking(at: Option<(f64, f64)>, network: [u8; 3]) -> Asking<'static> {
    let [a, b, c] = network;
    Asking {
        at: at.map(|(latitude, longitude)| Coordinates::new(latitude, longitude).unwrap()),
        network: ClientNetwork::of(IpAddr::from([a, b, c, 1])),
        name: b"infer.example.com.",
    }
}

fn choice(view: &DnsView, at: (f64, f64)) -> usize {
    choose(&zone(), view, &asking(Some(at), [192, 0, 2])).unwrap()
}

fn without(gone: &[usize]) -> DnsView {
    let mut view = view();
    for &index in gone {
        view.regions[index].is_offered = false;
    }
    view
}

#[test]
fn clients_are_led_to_the_nearest_region_that_is_offered() {
    for (gone, at, expected) in [
        (&[][..], PARIS, EU),
        (&[], NEW_YORK, US),
        (&[], TOKYO, AP),
        (&[], AZORES, EU),
        (&[EU], PARIS, US),
        (&[AP], TOKYO, EU),
        (&[EU, US], NEW_YORK, AP),
    ] {
        assert_eq!(choice(&without(gone), at), expected, "{gone:?} {at:?}");
    }
}

#[test]
fn without_an_offered_region_the_nearest_one_that_is_alive_is_told_and_without_that_any() {
    let mut view = without(&[EU, US, AP]);
    assert_eq!(choice(&view, PARIS), EU);
    view.regions[EU].is_alive = false;
    assert_eq!(choice(&view, PARIS), US);
    view.regions = vec![RegionState::default(); 3];
    assert_eq!(choice(&view, TOKYO), AP);
    assert_eq!(choice(&DnsView::default(), TOKYO), AP, "before anything is known");
}

#[test]
fn a_client_that_nobody_can_place_is_taken_for_a_neighbour_of_this_node() {
    for (own, gone, expected) in [(EU, &[][..], EU), (US, &[], US), (US, &[US], EU)] {
        let view = DnsView { own: Some(own), ..without(gone) };
        let found = choose(&zone(), &view, &asking(None, [192, 0, 2]));
        assert_eq!(found, Some(expected), "{own} {gone:?}");
    }
}

#[test]
fn a_measured_detour_from_the_nearest_region_makes_another_one_nearer() {
    let mut view = view();
    view.regions[EU].is_offered = false;
    let zone = zone();
    let at = |index: usize| zone.regions()[index].coordinates;
    let frankfurt = (at(EU).latitude, at(EU).longitude);
    assert_eq!(choice(&view, frankfurt), US);
    let straight = |index| rtt_by_distance_ms(at(EU), at(index)) as f32;
    // Twice the usual detour: by the measurements Singapore is nearer.
    view.regions[US].measured_rtt_ms = Some(straight(US) * 2.0);
    view.regions[AP].measured_rtt_ms = Some(straight(AP));
    assert_eq!(choice(&view, frankfurt), AP);
    assert_eq!(choice(&view, NEW_YORK), US, "that says nothing about clients elsewhere");
    // Faster than light: wrong coordinates, or a test on one machine.
    view.regions[AP].measured_rtt_ms = Some(1.0);
    view.regions[US].measured_rtt_ms = Some(1.0);
    assert_eq!(choice(&view, frankfurt), US);
}

#[test]
fn the_order_seen_from_the_own_region_is_that_of_measured_round_trips() {
    // DNS and forwarded requests must agree on the nearest region.
    let zone = zone();
    let home = zone.regions()[EU].coordinates;
    let at = (home.latitude, home.longitude);
    for (us_ms, ap_ms) in [(90.0, 160.0), (300.0, 170.0), (170.0, 169.0)] {
        let mut view = without(&[EU]);
        view.regions[US].measured_rtt_ms = Some(us_ms);
        view.regions[AP].measured_rtt_ms = Some(ap_ms);
        let nearer = if us_ms < ap_ms { US } else { AP };
        let mut exact = spec();
        exact.equal_ms = 0.0;
        let found = choose(&Zone::new(exact), &view, &asking(Some(at), [192, 0, 2]));
        assert_eq!(found, Some(nearer), "{us_ms} {ap_ms}");
    }
}

/// Counts, for each of three regions in one town, how many of 4,096 networks are directed to it.
fn spread(weights: [u32; 3]) -> BTreeMap<usize, usize> {
    let mut spec = spec();
    let town = spec.regions[EU].coordinates;
    spec.regions.iter_mut().for_each(|region| region.coordinates = town);
    let zone = Zone::new(spec);
    let mut view = view();
    for (region, weight) in view.regions.iter_mut().zip(weights) {
        region.weight_permille = weight;
        region.is_offered = weight > 0;
    }
    let mut counts = BTreeMap::new();
    for n in 0..4_096_u16 {
        let [high, low] = n.to_be_bytes();
        let found = choose(&zone, &view, &asking(Some(PARIS), [10, high, low])).unwrap();
        *counts.entry(found).or_default() += 1;
    }
    counts
}

#[test]
fn equally_near_regions_get_networks_by_weight() {
    let even = spread([1_000, 1_000, 1_000]);
    assert!(even.values().all(|&count| (1_200..1_530).contains(&count)), "{even:?}");
    let uneven = spread([1_000, 500, 0]);
    assert!((2_590..2_870).contains(&uneven[&EU]), "{uneven:?}");
    assert_eq!(uneven.get(&AP), None);
}

#[test]
fn addresses_are_of_one_region_and_as_many_as_the_config_says() {
    let zone = zone();
    let told = |network| addresses(&zone, AP, &asking(None, network));
    let mut seen = BTreeMap::<IpAddr, usize>::new();
    for n in 0..=255 {
        let addresses = told([10, 0, n]);
        assert_eq!(addresses.len(), 2);
        assert_eq!(addresses, told([10, 0, n]), "another order for the same network");
        assert!(addresses.iter().all(|address| zone.regions()[AP].addresses.contains(address)));
        *seen.entry(addresses[0]).or_default() += 1;
    }
    assert!(seen.len() == 3 && seen.values().all(|&first| first > 50), "{seen:?}");
}

proptest! {
    #[test]
    fn a_region_that_goes_moves_only_the_networks_that_it_had(
        latitude in -90.0..90.0_f64,
        longitude in -180.0..180.0_f64,
        network in any::<[u8; 3]>(),
        gone in 0..3_usize,
    ) {
        let asking = asking(Some((latitude, longitude)), network);
        let before = choose(&zone(), &view(), &asking).unwrap();
        let after = choose(&zone(), &without(&[gone]), &asking).unwrap();
        prop_assert!(after != gone);
        prop_assert!(before == gone || before == after);
    }

    #[test]
    fn no_region_is_nearer_than_the_chosen_one_by_more_than_counts_as_equal(
        latitude in -90.0..90.0_f64,
        longitude in -180.0..180.0_f64,
        network in any::<[u8; 3]>(),
    ) {
        let zone = zone();
        let at = Coordinates::new(latitude, longitude).unwrap();
        let found = choose(&zone, &view(), &asking(Some((latitude, longitude)), network)).unwrap();
        let ms = |index: usize| rtt_by_distance_ms(at, zone.regions()[index].coordinates);
        for index in 0..3 {
            prop_assert!(ms(found) <= ms(index) + 5.0 + 1e-9);
        }
    }
}
