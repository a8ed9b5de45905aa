//! Benchmarks of reading a location database and of looking up an address.
//!
//! Run with `cargo bench -p spillway-geo --features writer`.

use std::net::IpAddr;

use divan::{Bencher, black_box};
use spillway_geo::{DatabaseWriter, Locator};

/// Allocator that counts, so that the report shows allocations beside the times: a look-up makes
/// none.
#[global_allocator]
static ALLOCATOR: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    divan::main();
}

/// Returns a database of `networks` networks of 256 IPv4 addresses each. Every network has its own
/// record.
fn cities(networks: u32) -> Vec<u8> {
    (0..networks)
        .fold(DatabaseWriter::new("Bench-City"), |writer, number| {
            let network = std::net::Ipv4Addr::from_bits(0x0100_0000 + (number << 8));
            let east = f64::from(number % 360) - 180.0;
            writer.city(&format!("{network}/24"), "DE", (50.0, east))
        })
        .bytes()
}

/// Returns 4,096 addresses spread over all networks, so that the processor's cache does not hold
/// everything.
fn addresses(networks: u32) -> Vec<IpAddr> {
    let spread = |number: u32| number.wrapping_mul(0x9E37_79B1) % (networks << 8);
    let address = |number| std::net::Ipv4Addr::from_bits(0x0100_0000 + spread(number)).into();
    (0..4_096).map(address).collect()
}

fn measure<T>(
    bencher: Bencher<'_, '_>,
    networks: u32,
    look_up: impl Fn(&Locator, IpAddr) -> T + Sync,
) {
    let asns = DatabaseWriter::new("Bench-ASN").asn("0.0.0.0/1", 64_500).bytes();
    let locator = Locator::from_bytes(cities(networks), Some(asns));
    let Ok(locator) = locator else { return };
    let addresses = addresses(networks);
    let next = std::sync::atomic::AtomicUsize::new(0);
    bencher.bench(|| {
        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % addresses.len();
        look_up(black_box(&locator), addresses[index])
    });
}

#[divan::bench(args = [1_000, 100_000])]
fn locate(bencher: Bencher<'_, '_>, networks: u32) {
    measure(bencher, networks, Locator::locate);
}

#[divan::bench(args = [1_000, 100_000])]
fn country(bencher: Bencher<'_, '_>, networks: u32) {
    measure(bencher, networks, Locator::country);
}

#[divan::bench(args = [1_000, 100_000], sample_count = 5)]
fn read(bencher: Bencher<'_, '_>, networks: u32) {
    let bytes = cities(networks);
    bencher
        .with_inputs(|| bytes.clone())
        .bench_values(|bytes| Locator::from_bytes(bytes, None).is_ok());
}
