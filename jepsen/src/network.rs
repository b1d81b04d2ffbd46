//! A network of its own: every node in a network namespace, one TUN device each, and this process as
//! the switch between them.
//!
//! Every packet between two nodes, or between a node and the clients, is read here and then delivered,
//! delayed, duplicated or dropped, as its link says. So links can fail one way, between peers only, partly or
//! wholly, without packet filters or traffic control in the kernel.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io,
    net::Ipv4Addr,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tun_rs::{DeviceBuilder, SyncDevice};

/// The source or destination of a packet: a node's id, or [`CLIENTS`].
pub type Port = u8;
/// The port of the clients, which live in this process.
pub const CLIENTS: Port = 254;

const PACKET_BYTES_MAX: usize = 65_536;
const MTU: &str = "16000";

/// How a link treats a packet, one way.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Link {
    /// The share of packets that are lost, 0 to 1.
    pub loss: f64,
    /// The share of packets that are delivered twice, 0 to 1.
    pub duplicates: f64,
    /// How long each packet is delayed.
    pub delay: Duration,
    /// How much longer, at random, a packet is delayed at most. Packets then overtake each other.
    pub jitter: Duration,
}

impl Link {
    /// Nothing gets through.
    pub const CUT: Link =
        Link { loss: 1.0, duplicates: 0.0, delay: Duration::ZERO, jitter: Duration::ZERO };

    /// A cut of both directions between two ports.
    pub fn cut_both_ways(one: Port, other: Port) -> [(Port, Port, Link); 2] {
        [(one, other, Link::CUT), (other, one, Link::CUT)]
    }
}

/// The counts of packets on links so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacketCounts {
    /// Packets dropped.
    pub dropped: u64,
    /// Packets that were delayed.
    pub delayed: u64,
    /// Packets delivered twice.
    pub duplicated: u64,
}

struct Switch {
    ports: BTreeMap<Port, SyncDevice>,
    /// The owners of further addresses, by the last part of the address.
    further: Mutex<BTreeMap<u8, Port>>,
    links: Mutex<BTreeMap<(Port, Port), Link>>,
    /// The counts of each link, from the one port to the other.
    counts: Mutex<BTreeMap<(Port, Port), PacketCounts>>,
    delayed: Mutex<BinaryHeap<Reverse<DelayedPacket>>>,
    earlier_packet: Condvar,
    rng: Mutex<StdRng>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct DelayedPacket {
    due: Instant,
    to: Port,
    packet: Vec<u8>,
}

/// The switch.
pub struct Network(Arc<Switch>);

/// The address of a port.
pub fn address(port: Port) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, port)
}

/// The name of a node's network namespace.
pub fn namespace(port: Port) -> String {
    format!("n{port}")
}

fn ip(args: &str) -> io::Result<()> {
    let output = Command::new("ip").args(args.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {args}: {}", said.trim())))
}

fn device(port: Port) -> io::Result<SyncDevice> {
    let name = format!("rj{port}");
    let device = DeviceBuilder::new().name(&name).build_sync()?;
    let at = if port == CLIENTS {
        String::new()
    } else {
        let namespace = namespace(port);
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link set {name} netns {namespace}"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        format!("-n {namespace} ")
    };
    ip(&format!("{at}addr add {}/24 dev {name}", address(port)))?;
    ip(&format!("{at}link set {name} mtu {MTU} up"))?;
    Ok(device)
}

fn change_address(change: &str, port: Port, host: u8) -> io::Result<()> {
    let namespace = namespace(port);
    ip(&format!("-n {namespace} addr {change} {}/24 dev rj{port}", address(host)))
}

impl Network {
    /// Makes the namespaces of nodes 1 to `nodes`, and the switch between them. This process must
    /// already be in network and mount namespaces of its own.
    ///
    /// # Errors
    /// There is no TUN device or no `ip` here, or no right to use them.
    pub fn start(nodes: Port, seed: u64) -> io::Result<Network> {
        ip("link set lo up")?;
        let ports = (1..=nodes).chain([CLIENTS]);
        let ports = ports.map(|port| Ok((port, device(port)?)));
        let wire = Arc::new(Switch {
            ports: ports.collect::<io::Result<_>>()?,
            further: Mutex::default(),
            links: Mutex::default(),
            counts: Mutex::default(),
            delayed: Mutex::default(),
            earlier_packet: Condvar::new(),
            rng: Mutex::new(StdRng::seed_from_u64(seed)),
        });
        for port in wire.ports.keys().copied() {
            let wire = wire.clone();
            thread::Builder::new().name(format!("port-{port}")).spawn(move || wire.read(port))?;
        }
        let delayed = wire.clone();
        thread::Builder::new()
            .name("delayed-packets".to_owned())
            .spawn(move || delayed.deliver_delayed())?;
        Ok(Network(wire))
    }

    /// Gives a node a further address. Links treat packets to it as packets to the node's own address.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn add_address(&self, port: Port, host: u8) -> io::Result<()> {
        change_address("add", port, host)?;
        self.0.further.lock().insert(host, port);
        Ok(())
    }

    /// Takes a further address from a node. It leads nowhere then.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn remove_address(&self, port: Port, host: u8) -> io::Result<()> {
        self.0.further.lock().remove(&host);
        change_address("del", port, host)
    }

    /// Sets how the link from one port to another treats packets.
    pub fn set(&self, from: Port, to: Port, link: Link) {
        let mut links = self.0.links.lock();
        if link == Link::default() {
            links.remove(&(from, to));
        } else {
            links.insert((from, to), link);
        }
    }

    /// Makes all links perfect again.
    pub fn heal(&self) {
        self.0.links.lock().clear();
    }

    /// The counts of all links so far, in total.
    pub fn counts(&self) -> PacketCounts {
        let counts = self.0.counts.lock();
        counts.values().fold(PacketCounts::default(), |all, of_link| PacketCounts {
            dropped: all.dropped + of_link.dropped,
            delayed: all.delayed + of_link.delayed,
            duplicated: all.duplicated + of_link.duplicated,
        })
    }

    /// The counts of the link from one port to another so far.
    pub fn counts_of(&self, from: Port, to: Port) -> PacketCounts {
        self.0.counts.lock().get(&(from, to)).copied().unwrap_or_default()
    }
}

impl Switch {
    fn read(&self, from: Port) {
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        loop {
            match self.ports[&from].recv(&mut buffer) {
                Ok(length) => self.take(from, &buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    eprintln!("the switch cannot read from port {from}: {error}");
                    return;
                }
            }
        }
    }

    /// Takes an IPv4 packet for one of the ports; others (neighbour discovery and the like) are not
    /// for anybody here.
    fn take(&self, from: Port, packet: &[u8]) {
        let is_v4 = packet.len() >= 20 && packet[0] >> 4 == 4;
        if !is_v4 || packet[16..19] != address(0).octets()[..3] {
            return;
        }
        let to = self.further.lock().get(&packet[19]).copied().unwrap_or(packet[19]);
        let link = self.links.lock().get(&(from, to)).copied();
        let Some(link) = link else {
            return self.deliver(to, packet);
        };
        let (lost, twice, waits) = {
            let mut rng = self.rng.lock();
            let jitter = link.jitter.mul_f64(rng.random_range(0.0..=1.0));
            let lost = rng.random_bool(link.loss);
            (lost, rng.random_bool(link.duplicates), link.delay + jitter)
        };
        let mut all_counts = self.counts.lock();
        let counts = all_counts.entry((from, to)).or_default();
        if lost {
            counts.dropped += 1;
            return;
        }
        counts.duplicated += u64::from(twice);
        counts.delayed += u64::from(!waits.is_zero());
        drop(all_counts);
        for _ in 0..=u8::from(twice) {
            if waits.is_zero() {
                self.deliver(to, packet);
            } else {
                let due = Instant::now() + waits;
                let packet = packet.to_vec();
                self.delayed.lock().push(Reverse(DelayedPacket { due, to, packet }));
                self.earlier_packet.notify_one();
            }
        }
    }

    fn deliver(&self, to: Port, packet: &[u8]) {
        if let Some(port) = self.ports.get(&to) {
            // A full queue drops packets, as real ones do.
            let _ = port.send(packet);
        }
    }

    fn deliver_delayed(&self) {
        let mut delayed = self.delayed.lock();
        loop {
            let now = Instant::now();
            match delayed.peek() {
                Some(Reverse(first)) if first.due <= now => {
                    if let Some(Reverse(first)) = delayed.pop() {
                        self.deliver(first.to, &first.packet);
                    }
                }
                Some(Reverse(first)) => {
                    let due = first.due;
                    self.earlier_packet.wait_until(&mut delayed, due);
                }
                None => self.earlier_packet.wait(&mut delayed),
            }
        }
    }
}
