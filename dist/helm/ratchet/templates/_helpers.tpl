{{/* Labels by which the objects of a release find its pods. */}}
{{- define "ratchet.selector" -}}
app.kubernetes.io/name: ratchet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "ratchet.labels" -}}
{{ include "ratchet.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "ratchet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "ratchet.founders" -}}
{{ .Values.founders | default .Values.nodes }}
{{- end }}

{{/* Settings that all nodes share, as variables. */}}
{{- define "ratchet.settings" -}}
RATCHET_CLUSTER: {{ .Values.cluster | quote }}
RATCHET_LISTEN: 0.0.0.0:7600
RATCHET_PEER_LISTEN: 0.0.0.0:7601
RATCHET_METRICS_LISTEN: 0.0.0.0:7602
RATCHET_HTTP_LISTEN: 0.0.0.0:7603
RATCHET_RESP_LISTEN: 0.0.0.0:7604
RATCHET_MEMORY_MAX_MB: {{ .Values.memoryMaxMb | int64 | quote }}
RATCHET_CLIENT_CALLS_MAX: {{ .Values.clientCallsMax | int64 | quote }}
RATCHET_CLIENT_CONNECTIONS_MAX: {{ .Values.clientConnectionsMax | int64 | quote }}
{{- $peers := list }}
{{- range $pod := untilStep 1 (include "ratchet.founders" . | int | add1 | int) 1 }}
{{- $peers = append $peers (printf "%d=%s-%d.%s-nodes:7601" $pod $.Release.Name $pod $.Release.Name) }}
{{- end }}
RATCHET_PEERS: {{ join "," $peers }}
{{- if .Values.insecure }}
RATCHET_INSECURE: "true"
{{- end }}
{{- if .Values.tls.secret }}
RATCHET_TLS: require
{{- if .Values.tls.clientCertificates }}
RATCHET_TLS_CLIENT_CA: /etc/ratchet-tls/ca.crt
{{- end }}
RATCHET_PEER_TLS: require
RATCHET_PEER_TLS_CA: /etc/ratchet-tls/ca.crt
{{- end }}
{{- end }}

{{/* Further settings, as lines of the file of settings: there the node refuses a name that it does not know. */}}
{{- define "ratchet.furtherSettings" -}}
{{- range $name, $value := .Values.settings }}
{{- /* Helm reads every number of a file of values as one with a fraction. */}}
{{ $name }} = {{ if and (kindIs "float64" $value) (eq (floor $value) $value) }}{{ int64 $value }}{{ else }}{{ toJson $value }}{{ end }}
{{- end }}
{{- end }}

{{/* The most that a node takes to stop with its settings, and 15 s more, in seconds. docs/deploy.md has the sum. */}}
{{- define "ratchet.graceSeconds" -}}
{{- $handover := dig "handover_timeout_ms" 30000 .Values.settings | int64 }}
{{- $shutdown := dig "shutdown_timeout_ms" 5000 .Values.settings | int64 }}
{{- $election := dig "election_timeout_ms" 300 .Values.settings | int64 }}
{{- add 15 (div (add (mul 2 $handover) (mul 3 $shutdown) (mul 50 $election) 999) 1000) }}
{{- end }}
