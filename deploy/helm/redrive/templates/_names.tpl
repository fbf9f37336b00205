{{/* The name of everything: the release's, with the chart's unless it says so already. */}}
{{- define "redrive.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* What selects the pod; it never changes in an upgrade. */}}
{{- define "redrive.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* What selects the console's pod, which nothing of the job's may select. */}}
{{- define "redrive.console.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}-console
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "redrive.origin" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "redrive.labels" -}}
{{ include "redrive.selector" . }}
{{ include "redrive.origin" . }}
{{- end -}}

{{- define "redrive.console.labels" -}}
{{ include "redrive.console.selector" . }}
{{ include "redrive.origin" . }}
{{- end -}}

{{/* The value that `env` sets a variable to, as YAML; empty if it does not. */}}
{{- define "redrive.variable" -}}
{{- $name := .name -}}
{{- range .env }}{{ if eq .name $name }}{{ toYaml . }}{{ end }}{{ end -}}
{{- end -}}

{{/* The settings as the job reads them, as JSON. */}}
{{- define "redrive.settings" -}}
{{- $settings := fromToml .Values.settings -}}
{{- if kindIs "string" $settings.Error }}{{ fail (printf "settings: %s" $settings.Error) }}{{ end -}}
{{- toJson $settings -}}
{{- end -}}

{{/* [observe] listen, so that it stands in the settings and nowhere else. */}}
{{- define "redrive.listen" -}}
{{- if include "redrive.variable" (dict "env" .Values.env "name" "REDRIVE_OBSERVE__LISTEN") -}}
{{- fail "env: REDRIVE_OBSERVE__LISTEN is not for env; set listen of [observe] in settings, where the chart reads the port of the probes" -}}
{{- end -}}
{{- $listen := include "redrive.settings" . | fromJson | dig "observe" "listen" "" | toString -}}
{{- $match := regexMatch "^(0\\.0\\.0\\.0|\\[::\\]):[1-9][0-9]{0,4}$" $listen -}}
{{- if not (and $match (le (regexFind "[0-9]+$" $listen | int) 65535)) -}}
{{- fail (printf "settings: listen of [observe] is %q, but the probes and Prometheus need a port from 1 to 65535 at all addresses of the pod; set listen = \"0.0.0.0:9464\"" $listen) -}}
{{- end -}}
{{- $listen -}}
{{- end -}}

{{- define "redrive.port" -}}
{{- include "redrive.listen" . | regexFind "[0-9]+$" -}}
{{- end -}}

{{- define "redrive.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
{{- end -}}

{{/* What the pods of the job and of the console have in common. */}}
{{- define "redrive.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The same for their containers. */}}
{{- define "redrive.container" -}}
image: {{ include "redrive.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Volumes of the settings, of what they name, and of Secrets. */}}
{{- define "redrive.volumes" -}}
- name: configuration
  projected:
    sources:
      - configMap:
          name: {{ include "redrive.name" .root }}-settings
      - configMap:
          name: {{ include "redrive.name" .root }}-files
- name: scratch
  emptyDir: {}
{{- range .secrets }}
- name: {{ printf "secret-%s" (sha256sum . | trunc 12) }}
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "redrive.mounts" -}}
- name: configuration
  mountPath: /etc/redrive
  readOnly: true
- name: scratch
  mountPath: /tmp
{{- range .secrets }}
- name: {{ printf "secret-%s" (sha256sum . | trunc 12) }}
  mountPath: /run/secrets/{{ . }}
  readOnly: true
{{- end }}
{{- end -}}

{{/* A volume that lasts. */}}
{{- define "redrive.claim" -}}
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storageClassName }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .size }}
{{- end -}}

{{/* Rules of a NetworkPolicy: out go DNS and the ports of brokers. */}}
{{- define "redrive.egress" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- with .Values.networkPolicy.egressPorts }}
- ports:
    {{- range . }}
    - port: {{ . }}
      protocol: TCP
    {{- end }}
{{- end }}
{{- end -}}

{{/* What probes ask. The console answers to its own names only, and the pod's address is none. */}}
{{- define "redrive.console.question" -}}
httpGet:
  path: /livez
  port: console
  scheme: {{ upper . }}
  httpHeaders:
    - name: Host
      value: localhost
timeoutSeconds: 10
{{- end -}}
