//! Geolocation: location databases in memory, in the format that MaxMind defined (MMDB).

mod database;
mod error;
mod origin;
mod record;
mod tree;

use std::fmt;
use std::net::IpAddr;

use spillway_types::Country;

use crate::{ClientLocation, Coordinates};
use database::DatabaseSource;
use origin::origin;
use record::{AsnRecord, CityRecord, CountryRecord};

pub use database::Database;
pub use error::LocatorError;

/// Database types that locate networks.
const PLACE_TYPES: [&str; 3] = ["City", "Country", "Enterprise"];
/// Database types that contain the autonomous system that announces a network.
const ASN_TYPES: [&str; 2] = ["ASN", "ISP"];

/// Location databases, checked completely when they are read. A look-up allocates nothing and
/// cannot fail.
pub struct Locator {
    places: DatabaseSource,
    asns: Option<DatabaseSource>,
}

impl Locator {
    /// Creates a locator from a database of cities or countries and an optional one of autonomous
    /// systems.
    ///
    /// Reads every byte once: too slow for the data path.
    ///
    /// # Errors
    /// Returns an error if one of the two databases is damaged, cut off, no such database, or of
    /// another type.
    pub fn from_bytes(places: Vec<u8>, asns: Option<Vec<u8>>) -> Result<Self, LocatorError> {
        let locator = Self { places: DatabaseSource::read(places, &PLACE_TYPES)?, asns: None };
        match asns {
            Some(asns) => locator.with_asns(asns),
            None => Ok(locator),
        }
    }

    /// Adds a database of autonomous systems.
    ///
    /// # Errors
    /// Returns the errors of [`Locator::from_bytes`].
    pub fn with_asns(self, asns: Vec<u8>) -> Result<Self, LocatorError> {
        Ok(Self { asns: Some(DatabaseSource::read(asns, &ASN_TYPES)?), ..self })
    }

    /// Looks up the place of an address. Fields that no database knows are `None`.
    ///
    /// An IPv6 address that contains an IPv4 address (IPv4-mapped, NAT64, 6to4, Teredo) is looked
    /// up as that IPv4 address.
    #[must_use]
    pub fn locate(&self, address: IpAddr) -> ClientLocation {
        let address = origin(address);
        let place: CityRecord<'_> = self.places.look_up(address);
        let asns = self.asns.as_ref();
        ClientLocation {
            country: place.country.code(),
            // Values outside of the globe are dropped here.
            coordinates: place.location.coordinates(),
            asn: asns.and_then(|asns| asns.look_up::<AsnRecord>(address).asn()),
        }
    }

    /// Looks up the country of an address: less to decode than for [`Locator::locate`]. Returns
    /// `None` if the database has none.
    #[must_use]
    pub fn country(&self, address: IpAddr) -> Option<Country> {
        self.places.look_up::<CountryRecord<'_>>(origin(address)).country.code()
    }

    /// Returns the descriptions of the database of places and of the one of autonomous systems.
    #[must_use]
    pub fn databases(&self) -> (Database, Option<Database>) {
        (self.places.describe(), self.asns.as_ref().map(DatabaseSource::describe))
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes are left out: a database has up to a hundred million.
        f.debug_tuple("Locator").field(&self.databases()).finish()
    }
}

impl record::Location {
    fn coordinates(&self) -> Option<Coordinates> {
        Coordinates::new(self.latitude.0?, self.longitude.0?)
    }
}

#[cfg(test)]
#[path = "locator/locator_test.rs"]
mod locator_test;
