//! DNS is egress: the stub asks only for names that a rule allows, and tells only good addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, CNAME};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::BinDecodable;
use ringwall_egress::Names;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::origin::Origin;
use crate::world::{PATIENCE, TestAuthority, World};

/// A name server: per name the addresses of the first question, the second and so on.
struct NameServer {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl NameServer {
    async fn start(zone: &[(&str, &[&str])]) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let zone: HashMap<String, Vec<String>> = zone
            .iter()
            .map(|(name, answers)| ((*name).into(), answers.iter().map(|&a| a.into()).collect()))
            .collect();
        let log = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            let mut turn: HashMap<String, usize> = HashMap::new();
            while let Ok((size, from)) = socket.recv_from(&mut buffer).await {
                let query = Message::from_bytes(&buffer[..size]).unwrap();
                let question = query.queries[0].clone();
                let name = question.name().to_ascii().trim_end_matches('.').to_lowercase();
                log.lock().unwrap().push(format!("{} {name}", question.query_type()));
                let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
                reply.add_query(question.clone());
                match zone.get(&name) {
                    Some(answers) if question.query_type() == RecordType::A => {
                        let turn = turn.entry(name).or_default();
                        let answer = &answers[(*turn).min(answers.len() - 1)];
                        *turn += 1;
                        reply.answers.extend(records(question.name(), answer));
                    }
                    Some(_) => {}
                    None => reply.metadata.response_code = ResponseCode::NXDomain,
                }
                socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
            }
        });
        Self { address, asked }
    }

    fn names(&self) -> Names {
        Names::Servers(vec![self.address])
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// An address, or an alias and its address: `alias.example.net=10.0.0.1`.
fn records(name: &Name, answer: &str) -> Vec<Record> {
    let address = |text: &str| RData::A(A(text.parse::<Ipv4Addr>().unwrap()));
    match answer.split_once('=') {
        None => vec![Record::from_rdata(name.clone(), 0, address(answer))],
        Some((alias, answer)) => {
            let alias = Name::from_ascii(format!("{alias}.")).unwrap();
            vec![
                Record::from_rdata(name.clone(), 0, RData::CNAME(CNAME(alias.clone()))),
                Record::from_rdata(alias, 0, address(answer)),
            ]
        }
    }
}

fn question(name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.metadata.recursion_desired = true;
    message.to_vec().unwrap()
}

async fn ask(world: &World, query: &[u8]) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(query, world.dns).await.unwrap();
    let mut buffer = [0; 1500];
    let answer = tokio::time::timeout(PATIENCE, socket.recv(&mut buffer)).await.unwrap().unwrap();
    Message::from_bytes(&buffer[..answer]).unwrap()
}

fn addresses(message: &Message) -> Vec<IpAddr> {
    message.answers.iter().filter_map(|record| record.data.ip_addr()).collect()
}

fn allow(names: &[&str]) -> serde_json::Value {
    let rules: Vec<_> = names.iter().map(|name| serde_json::json!({"host": name})).collect();
    serde_json::json!({"rules": {"allow": rules}})
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_no_rule_allows_are_asked_of_nobody() {
    let server = NameServer::start(&[("api.example.com", &["1.2.3.4"])]).await;
    let world = World::start(TestAuthority::new(), server.names(), allow(&["api.example.com"]));
    for name in [
        "secret-data.evil.example.net.",
        "x.api.example.com.",
        "localhost.",
        "4.3.2.1.in-addr.arpa.",
    ] {
        let answer = ask(&world, &question(name, RecordType::A)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{name}");
        assert_eq!(world.connect(&format!("{}:443", name.trim_end_matches('.'))).await.0, 403);
    }
    for kind in [
        RecordType::TXT,
        RecordType::NULL,
        RecordType::ANY,
        RecordType::MX,
        RecordType::SRV,
        RecordType::PTR,
        RecordType::NS,
        RecordType::SOA,
        RecordType::AXFR,
    ] {
        let answer = ask(&world, &question("api.example.com.", kind)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{kind}");
    }
    let answer = ask(&world, &question("api.example.com.", RecordType::HTTPS)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
    assert!(answer.answers.is_empty());
    assert!(server.asked().is_empty(), "{:?}", server.asked());
    let answer = ask(&world, &question("API.example.com.", RecordType::A)).await;
    assert_eq!(addresses(&answer), ["1.2.3.4".parse::<IpAddr>().unwrap()]);
    assert!(server.asked().iter().all(|asked| asked.ends_with(" api.example.com")));
}

/// A name goes to whoever serves its domain, with all that was written into it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_into_names_counts_as_sent() {
    for tunnels in [false, true] {
        let server = NameServer::start(&[]).await;
        let mut task = allow(&["*.example.com"]);
        task["limits"] = serde_json::json!({"bytes_up": 300});
        let world = World::start(TestAuthority::new(), server.names(), task);
        let mut refused = 0;
        for number in 0..20 {
            let name = format!("{number:02}-{}.example.com", "secret".repeat(5));
            if tunnels {
                refused += u32::from(world.connect(&format!("{name}:443")).await.0 == 429);
            } else {
                let answer = ask(&world, &question(&format!("{name}."), RecordType::A)).await;
                refused += u32::from(answer.metadata.response_code == ResponseCode::Refused);
            }
        }
        assert!(refused >= 13, "{refused}");
        let mut names = server.asked();
        for name in &mut names {
            *name = name.split_once(' ').unwrap().1.to_owned();
        }
        names.sort_unstable();
        names.dedup();
        let sent: usize = names.iter().map(String::len).sum();
        assert!(!names.is_empty() && sent <= 300, "{names:?}");
        let told = world.refusals();
        let used_up = |event: &ringwall_gateway::event::Event| {
            event.reason.as_deref().is_some_and(|reason| reason.contains("all the bytes"))
        };
        assert!(told.iter().any(used_up), "{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_is_answered_like_udp() {
    let server = NameServer::start(&[("api.example.com", &["1.2.3.4"])]).await;
    let world = World::start(TestAuthority::new(), server.names(), allow(&["api.example.com"]));
    let mut stream = TcpStream::connect(world.dns).await.unwrap();
    for (name, code) in
        [("api.example.com.", ResponseCode::NoError), ("evil.example.net.", ResponseCode::Refused)]
    {
        let query = question(name, RecordType::A);
        stream.write_u16(u16::try_from(query.len()).unwrap()).await.unwrap();
        stream.write_all(&query).await.unwrap();
        let size = stream.read_u16().await.unwrap();
        let mut answer = vec![0; usize::from(size)];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(Message::from_bytes(&answer).unwrap().metadata.response_code, code);
    }
    stream.write_u16(60000).await.unwrap();
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0, "a query of that size is no query");
}

#[tokio::test(flavor = "multi_thread")]
async fn aliases_and_answers_that_lead_inside_are_not_told() {
    let server = NameServer::start(&[
        ("alias.example.com", &["inside.example.net=10.0.0.1"]),
        ("plain.example.com", &["169.254.169.254"]),
    ])
    .await;
    let names = ["alias.example.com", "plain.example.com"];
    let world = World::start(TestAuthority::new(), server.names(), allow(&names));
    for name in names {
        let answer = ask(&world, &question(&format!("{name}."), RecordType::A)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::Refused, "{name}");
        assert_eq!(world.connect(&format!("{name}:443")).await.0, 403, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_changes_its_mind_gains_nothing() {
    let authority = TestAuthority::new();
    let origin = Origin::tls(&authority, &["api.example.com"]).await;
    let trap = tokio::net::TcpListener::bind(("127.0.0.2", origin.port())).await.unwrap();
    let server = NameServer::start(&[("api.example.com", &["127.0.0.1", "127.0.0.2"])]).await;
    let task = serde_json::json!({"rules": {"allow": [{"host": "api.example.com", "port": origin.port()}]}});
    let world = World::start(authority, server.names(), task);
    let mut client = world.client("api.example.com", origin.port(), false).await;
    // The tunnel stays with the address that was judged, for every request in it.
    assert_eq!(client.get("/1").await.0, 200);
    assert_eq!(client.get("/2").await.0, 200);
    assert_eq!(world.connect(&format!("api.example.com:{}", origin.port())).await.0, 403);
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(200), trap.accept()).await;
    assert!(nobody.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_queries_are_not_answered() {
    let server = NameServer::start(&[]).await;
    let world = World::start(TestAuthority::new(), server.names(), allow(&["api.example.com"]));
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut response = Message::from_bytes(&question("api.example.com.", RecordType::A)).unwrap();
    response.metadata.message_type = hickory_proto::op::MessageType::Response;
    for bytes in [b"".to_vec(), b"x".to_vec(), vec![0xff; 600], response.to_vec().unwrap()] {
        socket.send_to(&bytes, world.dns).await.unwrap();
    }
    let mut buffer = [0; 512];
    let quiet =
        tokio::time::timeout(std::time::Duration::from_millis(200), socket.recv(&mut buffer));
    assert!(quiet.await.is_err());
    let answer = ask(&world, &question("evil.example.net.", RecordType::A)).await;
    assert_eq!(answer.metadata.response_code, ResponseCode::Refused);
}
