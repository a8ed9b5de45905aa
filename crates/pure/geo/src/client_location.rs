//! Locations of clients, from location databases.

use spillway_types::Country;

/// Mean radius of the Earth in kilometres (IUGG).
const EARTH_RADIUS_KM: f64 = 6_371.008_8;

/// Point on Earth, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coordinates {
    /// Degrees north of the equator, -90 to 90.
    pub latitude: f64,
    /// Degrees east of Greenwich, -180 to 180.
    pub longitude: f64,
}

impl Coordinates {
    /// Creates a point; `None` if a value is NaN or out of range.
    #[must_use]
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let is_on_earth =
            (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        is_on_earth.then_some(Self { latitude, longitude })
    }

    /// Returns the great-circle distance to `other` in kilometres (haversine formula).
    #[must_use]
    pub fn distance_km(self, other: Self) -> f64 {
        let north = (other.latitude - self.latitude).to_radians();
        let east = (other.longitude - self.longitude).to_radians();
        let cosines = self.latitude.to_radians().cos() * other.latitude.to_radians().cos();
        let chord = (north / 2.0).sin().powi(2) + cosines * (east / 2.0).sin().powi(2);
        // Rounding may lift antipodes a little above 1, where the arcsine is NaN.
        2.0 * EARTH_RADIUS_KM * chord.sqrt().min(1.0).asin()
    }
}

/// Location of a client, as far as a database knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClientLocation {
    /// Country that the client is in, not the country where the network is registered.
    pub country: Option<Country>,
    /// Point that represents the network's users; country databases have none.
    pub coordinates: Option<Coordinates>,
    /// Number of the autonomous system that announces the network.
    pub asn: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(latitude: f64, longitude: f64) -> Coordinates {
        Coordinates::new(latitude, longitude).unwrap()
    }

    #[test]
    fn distances_are_those_of_an_atlas() {
        let (frankfurt, virginia) = (at(50.11, 8.68), at(38.95, -77.45));
        assert!((frankfurt.distance_km(virginia) - 6_540.0).abs() < 20.0);
        assert!((at(0.0, 179.5).distance_km(at(0.0, -179.5)) - 111.2).abs() < 0.1);
        assert!((at(0.0, 0.0).distance_km(at(0.0, 180.0)) - 20_015.1).abs() < 0.1);
        assert_eq!(at(90.0, 0.0).distance_km(at(90.0, 77.0)).round(), 0.0);
    }

    #[test]
    fn what_is_not_on_earth_is_no_point() {
        assert_eq!(Coordinates::new(90.1, 0.0), None);
        assert_eq!(Coordinates::new(0.0, -180.1), None);
        assert_eq!(Coordinates::new(f64::NAN, 0.0), None);
    }
}
