//! Proxies of Debian, each as small as its settings make it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A proxy that runs until this is dropped.
pub(crate) struct Rival {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    child: Child,
    _place: tempfile::TempDir,
}

impl Rival {
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn squid() -> Result<Rival, String> {
    start("squid", "/usr/sbin/squid", &["-N", "-f"], |port, place| {
        let place = place.display();
        format!(
            "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log none\n\
             cache_log /dev/null\npid_filename none\ncoredump_dir {place}\nmax_filedesc 8192\n\
             shutdown_lifetime 0 seconds\npinger_enable off\n"
        )
    })
}

pub(crate) fn tinyproxy() -> Result<Rival, String> {
    start("tinyproxy", "/usr/bin/tinyproxy", &["-d", "-c"], |port, _| {
        format!("Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 4000\nLogLevel Critical\n")
    })
}

fn start(
    name: &'static str,
    program: &str,
    flags: &[&str],
    settings: impl Fn(u16, &Path) -> String,
) -> Result<Rival, String> {
    if !Path::new(program).exists() {
        return Err(format!("{name} is not installed (`make setup` gets it)"));
    }
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    // Both drop root's rights, and must still find their settings.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), mode).map_err(|error| error.to_string())?;
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| error.to_string())?;
    let file = place.path().join("settings");
    std::fs::write(&file, settings(address.port(), place.path())).map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(flags).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let rival = Rival { name, address, child, _place: place };
    let until = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        if Instant::now() > until {
            return Err(format!("{name} did not listen in time"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(rival)
}
