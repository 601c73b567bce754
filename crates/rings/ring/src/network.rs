//! What a ring with a way to the network has: sockets for the gateway, and what tells programs of them.

use ringwall_linux::step::{Place, Slot, Step};

use crate::base::{Base, READ_ONLY};
use crate::input::NetworkInput;
use crate::run_slots as slot;

/// Where programs inside find the proxy of the gateway.
pub const PROXY_PORT: u16 = 3128;
/// What they are to trust there.
pub const AUTHORITY_PATH: &str = "/dev/.ringwall/net/authority.pem";
const DNS_PORT: u16 = 53;

impl Base {
    /// In a guest, from which no socket goes out, the ring's warden listens, and has no power over its network.
    pub(crate) fn free_ports(&mut self, network: &NetworkInput) {
        let from = network.direct.iter().copied().fold(DNS_PORT, u16::min);
        self.push(Step::FreePorts { proc: Place::new(slot::ROOT, "proc"), from });
    }

    /// Sockets of the ring's own loopback, which go out to the engine and stay with the gateway, and
    /// what tells programs of them. Nothing of it gives the ring a way out.
    pub(crate) fn offer_network(&mut self, network: &NetworkInput, root: Slot, in_guest: bool) {
        if !network.direct.is_empty() {
            self.push(Step::TakeAllAddresses);
        }
        if !in_guest {
            self.listen_for_gateway(network);
        }
        let files = slot::NETWORK_FILES;
        self.push(Step::Tmpfs { bytes: 1 << 16, inodes: 8, mode: 0o755, into: files });
        let contents = [
            ("authority.pem", network.authority.as_bytes()),
            ("resolv.conf", b"nameserver 127.0.0.1\n".as_slice()),
        ];
        for (name, content) in contents {
            let content = content.to_vec();
            self.push(Step::WriteFile { at: Place::new(files, name), content });
        }
        self.push(Step::SetMountFlags { tree: files, flags: READ_ONLY });
        self.push(Step::Attach { tree: files, at: Place::new(root, "dev/.ringwall/net") });
        // Where there is none, programs ask this machine anyway (resolv.conf(5)).
        let cover = Place::new(root, "dev/.ringwall/net/resolv.conf");
        self.push(Step::Cover { cover, at: Place::new(root, "etc/resolv.conf") });
    }

    fn listen_for_gateway(&mut self, network: &NetworkInput) {
        let [proxy, dns, dns_tcp] = slot::LISTENING;
        let direct = !network.direct.is_empty();
        for (port, datagrams, into) in
            [(PROXY_PORT, false, proxy), (DNS_PORT, true, dns), (DNS_PORT, false, dns_tcp)]
        {
            let all_addresses = direct && port == DNS_PORT;
            self.push(Step::Listen { port, datagrams, all_addresses, into });
            self.push(Step::Report { slot: into });
        }
        for port in &network.direct {
            let (port, datagrams, all_addresses, into) = (*port, false, true, slot::DIRECT);
            self.push(Step::Listen { port, datagrams, all_addresses, into });
            self.push(Step::Report { slot: into });
        }
    }
}
