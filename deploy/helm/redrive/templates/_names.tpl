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
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "redrive.labels" -}}
{{ include "redrive.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The port of [observe] listen, so that it stands in the settings and nowhere else. */}}
{{- define "redrive.port" -}}
{{- regexFind "listen *= *\"[^\"]*:[0-9]+\"" .Values.settings | regexFind "[0-9]+\"$" | trimSuffix "\"" -}}
{{- end -}}
