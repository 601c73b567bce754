//! Addresses that stand for names, in sandboxes whose programs know no proxy: a program looks a name
//! up, gets such an address, connects to it, and so says which name it means.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, PoisonError};

use ringwall_spec::Host;

/// A network that is nobody's (RFC 2544), so no such address is ever meant for itself.
const FIRST: u32 = u32::from_be_bytes([198, 18, 0, 0]);
/// As many names as there are addresses in it, but the first.
const MOST: usize = (1 << 17) - 1;

#[derive(Debug, Default)]
pub(crate) struct Fakes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    numbers: HashMap<Host, u32>,
    hosts: Vec<Host>,
}

/// An address that was given for no name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0} stands for no name that was looked up here")]
pub(crate) struct Unknown(IpAddr);

impl Fakes {
    /// The address that stands for a name; the same each time. None when there are too many names.
    pub(crate) fn of(&self, host: &Host) -> Option<IpAddr> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match known.numbers.get(host) {
            Some(number) => *number,
            None => {
                let number = u32::try_from(known.hosts.len()).ok()?.checked_add(1)?;
                if known.hosts.len() >= MOST {
                    return None;
                }
                known.hosts.push(host.clone());
                known.numbers.insert(host.clone(), number);
                number
            }
        };
        Some(Ipv4Addr::from(FIRST.checked_add(number)?).into())
    }

    /// What a connection to an address is for: a name, or the address itself.
    pub(crate) fn host(&self, address: IpAddr) -> Result<Host, Unknown> {
        let IpAddr::V4(four) = address else { return Ok(Host::Address(address)) };
        let Some(number) = u32::from(four).checked_sub(FIRST) else {
            return Ok(Host::Address(address));
        };
        if usize::try_from(number).map_or(true, |number| number > MOST) {
            return Ok(Host::Address(address));
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let host = place.and_then(|place| known.hosts.get(place));
        host.cloned().ok_or(Unknown(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_back_to_its_name_and_others_to_themselves() {
        let fakes = Fakes::default();
        let host = |name: &str| Host::parse(name).unwrap();
        let one = fakes.of(&host("a.example.com")).unwrap();
        let two = fakes.of(&host("b.example.com")).unwrap();
        assert_eq!(one, IpAddr::from([198, 18, 0, 1]));
        assert_eq!(fakes.of(&host("a.example.com")), Some(one));
        assert_eq!(fakes.host(two), Ok(host("b.example.com")));
        for unknown in [[198, 18, 0, 0], [198, 18, 0, 3], [198, 19, 255, 255]] {
            assert_eq!(fakes.host(unknown.into()), Err(Unknown(unknown.into())));
        }
        for itself in [[198, 17, 255, 255], [198, 20, 0, 0], [127, 0, 0, 1], [0, 0, 0, 0]] {
            assert_eq!(fakes.host(itself.into()), Ok(Host::Address(itself.into())));
        }
    }
}
