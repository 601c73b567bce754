//! The options of system calls that are many calls in one: what each makes, by a row of the table of kernel
//! objects. `sealed.filter` gives jobs these options and no others, and a test compares both.

/// The options of one call, or of one level of it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub call: &'static str,
    /// The level, for options of sockets.
    pub level: Option<&'static str>,
    pub make: &'static [Made],
    /// Options without an object of their own.
    pub make_nothing: &'static str,
    /// Options that the list leaves to `job.filter`, which refuses them with an answer of its own.
    pub refused_below: &'static str,
}

/// Options that make something.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub options: &'static str,
    /// The row of the table that it is counted in.
    pub object: &'static str,
}

const fn made(options: &'static str, object: &'static str) -> Made {
    Made { options, object }
}

/// All of them.
pub const OPTIONS: &[Options] = &[
    Options {
        call: "prctl",
        level: None,
        make: &[
            made("PR_SET_PTRACER", "processes and threads"),
            made("PR_FUTEX_HASH", "locks between threads"),
        ],
        make_nothing: "PR_SET_PDEATHSIG PR_GET_PDEATHSIG PR_GET_DUMPABLE PR_SET_DUMPABLE PR_GET_KEEPCAPS \
            PR_SET_KEEPCAPS PR_GET_TIMING PR_SET_TIMING PR_SET_NAME PR_GET_NAME PR_GET_SECCOMP \
            PR_CAPBSET_READ PR_CAPBSET_DROP PR_GET_TSC PR_SET_TSC PR_GET_SECUREBITS \
            PR_SET_SECUREBITS PR_SET_TIMERSLACK PR_GET_TIMERSLACK PR_MCE_KILL PR_MCE_KILL_GET \
            PR_SET_CHILD_SUBREAPER PR_GET_CHILD_SUBREAPER PR_SET_NO_NEW_PRIVS \
            PR_GET_NO_NEW_PRIVS PR_GET_TID_ADDRESS PR_SET_THP_DISABLE PR_GET_THP_DISABLE \
            PR_CAP_AMBIENT PR_GET_SPECULATION_CTRL PR_SET_SPECULATION_CTRL PR_GET_IO_FLUSHER \
            PR_SET_SYSCALL_USER_DISPATCH PR_SET_MDWE PR_GET_MDWE PR_GET_MEMORY_MERGE PR_GET_AUXV \
            PR_GET_SHADOW_STACK_STATUS",
        refused_below: "",
    },
    Options {
        call: "fcntl",
        level: None,
        make: &[
            made("F_DUPFD F_DUPFD_CLOEXEC F_SETFL F_SETOWN F_SETOWN_EX F_SETSIG", "open files"),
            made("F_SETLK F_SETLKW", "locks on files"),
            made("F_SETPIPE_SZ", "pipes and their buffers"),
        ],
        make_nothing: "F_GETFD F_SETFD F_GETFL F_GETLK F_GETOWN F_GETSIG F_GETOWN_EX F_GETOWNER_UIDS \
            F_OFD_GETLK F_GETLEASE F_DUPFD_QUERY F_CREATED_QUERY F_GETPIPE_SZ F_ADD_SEALS \
            F_GET_SEALS F_GET_RW_HINT F_SET_RW_HINT F_GET_FILE_RW_HINT F_SET_FILE_RW_HINT",
        refused_below: "F_OFD_SETLK F_OFD_SETLKW",
    },
    Options {
        call: "setsockopt",
        level: Some("SOL_SOCKET"),
        make: &[
            made("SO_SNDBUF SO_RCVBUF", "unix sockets and their buffers"),
            made("SO_REUSEPORT SO_MAX_PACING_RATE", "TCP buffers"),
            made("SO_ZEROCOPY", "pages of a process, and of what processes share"),
            made("SO_TIMESTAMPING_OLD SO_TIMESTAMPING_NEW", "UDP buffers"),
        ],
        make_nothing: "SO_DEBUG SO_REUSEADDR SO_TYPE SO_ERROR SO_DONTROUTE SO_BROADCAST SO_KEEPALIVE \
            SO_OOBINLINE SO_NO_CHECK SO_PRIORITY SO_LINGER SO_BSDCOMPAT SO_PASSCRED SO_RCVLOWAT \
            SO_SNDLOWAT SO_RCVTIMEO_OLD SO_SNDTIMEO_OLD SO_BINDTODEVICE SO_DETACH_FILTER \
            SO_TIMESTAMP_OLD SO_PASSSEC SO_TIMESTAMPNS_OLD SO_RXQ_OVFL SO_PEEK_OFF \
            SO_LOCK_FILTER SO_SELECT_ERR_QUEUE SO_INCOMING_CPU SO_BINDTOIFINDEX SO_TIMESTAMP_NEW \
            SO_TIMESTAMPNS_NEW SO_RCVTIMEO_NEW SO_SNDTIMEO_NEW SO_DETACH_REUSEPORT_BPF \
            SO_BUF_LOCK SO_TXREHASH SO_PASSPIDFD SO_PASSRIGHTS",
        refused_below: "",
    },
    Options {
        call: "setsockopt",
        level: Some("IPPROTO_IP"),
        make: &[made("IP_RECVERR", "UDP buffers")],
        make_nothing: "IP_TOS IP_TTL IP_RECVOPTS IP_RETOPTS IP_PKTINFO IP_MTU_DISCOVER IP_RECVTTL \
            IP_RECVTOS IP_FREEBIND IP_RECVORIGDSTADDR IP_MINTTL IP_BIND_ADDRESS_NO_PORT \
            IP_RECVFRAGSIZE IP_RECVERR_RFC4884 IP_MULTICAST_IF IP_MULTICAST_TTL \
            IP_MULTICAST_LOOP IP_MULTICAST_ALL IP_UNICAST_IF IP_LOCAL_PORT_RANGE",
        refused_below: "",
    },
    Options {
        call: "setsockopt",
        level: Some("IPPROTO_TCP"),
        make: &[made("TCP_CONGESTION TCP_FASTOPEN TCP_DEFER_ACCEPT", "TCP buffers")],
        make_nothing: "TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT \
            TCP_LINGER2 TCP_WINDOW_CLAMP TCP_QUICKACK TCP_THIN_LINEAR_TIMEOUTS TCP_THIN_DUPACK \
            TCP_USER_TIMEOUT TCP_NOTSENT_LOWAT TCP_FASTOPEN_CONNECT TCP_FASTOPEN_NO_COOKIE \
            TCP_INQ TCP_TX_DELAY",
        refused_below: "",
    },
    Options {
        call: "setsockopt",
        level: Some("IPPROTO_UDP"),
        make: &[made("UDP_CORK UDP_SEGMENT", "UDP buffers")],
        make_nothing: "UDP_NO_CHECK6_TX UDP_NO_CHECK6_RX UDP_GRO",
        refused_below: "",
    },
    Options {
        call: "setsockopt",
        level: Some("IPPROTO_IPV6"),
        make: &[made("IPV6_RECVERR", "UDP buffers")],
        make_nothing: "IPV6_UNICAST_HOPS IPV6_MULTICAST_IF IPV6_MULTICAST_HOPS IPV6_MULTICAST_LOOP \
            IPV6_MTU_DISCOVER IPV6_MTU IPV6_V6ONLY IPV6_MULTICAST_ALL IPV6_RECVERR_RFC4884 \
            IPV6_FLOWINFO_SEND IPV6_RECVPKTINFO IPV6_RECVHOPLIMIT IPV6_RECVHOPOPTS \
            IPV6_RECVRTHDR IPV6_RECVDSTOPTS IPV6_RECVPATHMTU IPV6_DONTFRAG IPV6_RECVTCLASS \
            IPV6_TCLASS IPV6_AUTOFLOWLABEL IPV6_ADDR_PREFERENCES IPV6_MINHOPCOUNT \
            IPV6_RECVORIGDSTADDR IPV6_UNICAST_IF IPV6_RECVFRAGSIZE IPV6_FREEBIND",
        refused_below: "IPV6_FLOWLABEL_MGR",
    },
    Options {
        call: "ioctl",
        level: None,
        make: &[
            made("FICLONE FICLONERANGE FIDEDUPERANGE", "files of the scratch space"),
            made("FIOASYNC FIOSETOWN SIOCSPGRP TIOCGPTPEER", "open files"),
            made("TIOCSCTTY", "processes and threads"),
        ],
        make_nothing: "TCGETS TCSETS TCSETSW TCSETSF TCGETA TCSETA TCSETAW TCSETAF TCSBRK TCXONC TCFLSH \
            TIOCEXCL TIOCNXCL TIOCGPGRP TIOCSPGRP TIOCOUTQ TIOCGWINSZ TIOCSWINSZ TIOCMGET \
            FIONREAD TIOCPKT FIONBIO TIOCNOTTY TIOCGETD TCSBRKP TIOCGSID TCGETS2 TCSETS2 \
            TCSETSW2 TCSETSF2 TIOCGPTN TIOCSPTLCK TIOCGDEV TIOCSIG TIOCGPKT TIOCGPTLCK TIOCGEXCL \
            FIONCLEX FIOCLEX FIOQSIZE FIOGETOWN SIOCGPGRP SIOCATMARK SIOCGSTAMP_OLD SIOCGIFNAME \
            SIOCGIFCONF SIOCGIFFLAGS SIOCGIFADDR SIOCGIFDSTADDR SIOCGIFBRDADDR SIOCGIFNETMASK \
            SIOCGIFMETRIC SIOCGIFMTU SIOCGIFHWADDR SIOCGIFINDEX SIOCGIFTXQLEN SIOCGIFMAP \
            SIOCETHTOOL FIGETBSZ FS_IOC_FIEMAP FS_IOC_GETFLAGS FS_IOC_SETFLAGS FS_IOC_GETVERSION \
            FS_IOC_FSGETXATTR FS_IOC_FSSETXATTR FS_IOC_GETFSLABEL RNDGETENTCNT BLKGETSIZE64 \
            BLKSSZGET",
        refused_below: "TIOCSTI TIOCLINUX TIOCSETD",
    },
];
