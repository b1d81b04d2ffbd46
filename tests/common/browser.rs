//! Headless Chromium, driven by WebDriver: HTTP and JSON, which `chromedriver` speaks. `cluster/test` installs both.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Command, Stdio},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{PATIENCE, http, processes::Process};

/// A browser with one tab. It ends when this is dropped.
pub struct Browser {
    address: SocketAddr,
    session: String,
    _driver: Process,
    /// The directory that the browser writes to.
    _dir: TempDir,
}

impl Browser {
    /// Starts a browser.
    pub async fn start() -> Browser {
        let dir = TempDir::new().expect("a temporary directory");
        // Ends the driver also if this process is killed.
        let started = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", "chromedriver", "--port=0"])
            .env("TMPDIR", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut driver = Process(started.expect("setpriv, of util-linux, runs"));
        let stdout = driver.0.stdout.take().expect("it is piped");
        let found = tokio::task::spawn_blocking(move || {
            let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let port = lines.find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse::<u16>().ok()
            });
            // Its further output is read, or it would be stopped.
            std::thread::spawn(move || lines.for_each(drop));
            port
        });
        let port = found.await.expect("no panic");
        let port = port.expect("chromedriver starts; cluster/prerequisites --tests installs it");
        let mut browser = Browser {
            address: ([127, 0, 0, 1], port).into(),
            session: String::new(),
            _driver: driver,
            _dir: dir,
        };
        let options = json!({"args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        ]});
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}});
        let begun = browser.send("POST /session", wanted).await;
        begun["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser
    }

    async fn send(&self, what: &str, body: Value) -> Value {
        let kind = "Content-Type: application/json\r\n";
        let page = http(self.address, what, kind, &body.to_string()).await;
        let answer: Value = serde_json::from_str(&page.body).expect("JSON");
        assert_eq!(page.status, 200, "{what} {body}: {answer}");
        answer["value"].clone()
    }

    async fn command(&self, command: &str, body: Value) -> Value {
        let what = format!("POST /session/{}/{command}", self.session);
        self.send(&what, body).await
    }

    /// Has the tab show a page.
    pub async fn open(&self, url: &str) {
        self.command("url", json!({"url": url})).await;
    }

    /// The value of an expression of JavaScript.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let script = format!("return {expression}");
        let body = json!({"script": script, "args": []});
        self.command("execute/sync", body).await
    }

    /// Types keys, as the user does.
    pub async fn type_keys(&self, keys: &str) {
        let each = keys.chars().flat_map(|key| {
            ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()}))
        });
        let actions: Vec<Value> = each.collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("actions", body).await;
    }

    /// Sets the size of the tab, and whether it prefers a light or a dark look.
    pub async fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.devtools("Emulation.setDeviceMetricsOverride", size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.devtools("Emulation.setEmulatedMedia", features).await;
    }

    /// Has the tab run JavaScript, or not.
    pub async fn run_scripts(&self, wanted: bool) {
        let disabled = json!({"value": !wanted});
        self.devtools("Emulation.setScriptExecutionDisabled", disabled).await;
    }

    async fn devtools(&self, command: &str, params: Value) {
        let body = json!({"cmd": command, "params": params});
        self.command("goog/cdp/execute", body).await;
    }

    /// Takes a picture of the tab. Returns its file: in `RATCHET_SCREENSHOTS`, or in cargo's directory.
    pub async fn picture(&self, name: &str) -> PathBuf {
        let what = format!("GET /session/{}/screenshot", self.session);
        let page = http(self.address, &what, "", "").await;
        let answer: Value = serde_json::from_str(&page.body).expect("JSON");
        let text = answer["value"].as_str().expect("a picture");
        let bytes = BASE64_STANDARD.decode(text).expect("base64");
        let dir = std::env::var_os("RATCHET_SCREENSHOTS");
        let dir = dir.map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
        std::fs::create_dir_all(&dir).expect("a directory for pictures");
        let file = dir.join(format!("{name}.png"));
        std::fs::write(&file, bytes).expect("the picture is written");
        file
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver does not end the browser when it ends itself.
        let ending = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let request = format!(
                "DELETE /session/{} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
                self.session, self.address
            );
            stream.write_all(request.as_bytes())?;
            stream.read(&mut [0; 64])
        };
        if let Err(error) = ending() {
            eprintln!("the browser may still run: {error}");
        }
    }
}
